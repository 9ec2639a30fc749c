"""The parts of the Telegram channel: options, transport, errors, rendering, albums, odd updates."""

import datetime as dt
import gc
import random
import re
import sys
from collections import Counter
from types import SimpleNamespace
from unittest import mock

import pytest
import telegram.error
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    PassportDecryptionError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from adapters.telegram import TelegramConfig, plugin, render
from adapters.telegram.account import Pace
from adapters.telegram.api import AiohttpRequest, LeanBot, failure, new_session, redact
from adapters.telegram.inbound import Identity, Ignored, album_of, normalise, press_of
from adapters.telegram.message import chat_id
from adapters.telegram.render import LIMIT, MAX_ENTITIES, formatted, parse
from adapters.telegram.send import Allowance
from adapters.telegram.updates import Updates
from bot.channel import Inbound, Media, ReplyTo
from bot.channel.kit.intake import MAX_PARTS, Part, Pending, continues, merged
from bot.channel.kit.json_access import parse_json
from bot.channel.kit.supervisor import Supervisor
from bot.channel.kit.text import has_ink, spans, units
from bot.errors import ChatMoved, SendLater, SendRefused, SendTransient, SendUnreachable
from bot.testing import RecordingEngine
from tests.fakes import telegram_entities
from tests.fakes.telegram_rooms import mentions_in
from tests.odd import mutated
from tests.proofs.rounds import rounds, sample


def config(**values):
    return TelegramConfig.model_validate(values)


@pytest.mark.parametrize(
    ("values", "ready"),
    [
        ({}, False),
        ({"token": ""}, False),
        ({"token": "1:a"}, True),
        ({"accounts": {"work": {"token": "2:b"}}}, True),
        ({"accounts": {"work": {}}}, False),
    ],
)
def test_the_channel_is_ready_once_any_bot_has_a_token(values, ready):
    assert plugin.ready(config(**values)) is ready


def test_the_top_level_token_is_the_default_account_and_others_do_not_inherit_it():
    section = config(token="1:a", accounts={"work": {"token": "2:b"}, "idle": {}})
    assert section.tokens() == {
        "default": "1:a",
        "work": "2:b",
    }


def test_an_account_named_default_replaces_the_top_level_token():
    section = config(token="1:a", accounts={"default": {"token": "2:b"}})
    assert section.tokens() == {"default": "2:b"}


def test_an_account_inherits_what_it_does_not_set():
    section = config(
        token="1:a",
        api_root="http://127.0.0.1:1",
        allow_from=["5"],
        accounts={"work": {"token": "2:b", "dm_policy": "allowlist"}},
    )
    work = section.account("work")
    assert isinstance(work, TelegramConfig)
    assert (work.dm_policy, work.allow_from, work.api_root) == (
        "allowlist",
        ("5",),
        "http://127.0.0.1:1",
    )


@pytest.mark.parametrize("name", ["Work", "-a", "a b", "", "a" * 65, "ä"])
def test_account_ids_follow_the_rule_of_session_keys(name):
    with pytest.raises(ValidationError):
        config(accounts={name: {"token": "1:a"}})


def test_two_accounts_with_one_token_are_an_error():
    with pytest.raises(ValidationError, match="same token"):
        config(token="1:a", accounts={"work": {"token": "1:a"}})


WEBHOOK = {"mode": "webhook", "webhook_url": "https://bot.example", "webhook_secret": "s3cret"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"webhook_url": ""}, "needs webhook_url"),
        ({"webhook_secret": None}, "needs webhook_secret"),
        ({"webhook_secret": ""}, "needs webhook_secret"),
        ({"webhook_secret": "no spaces"}, "1-256 letters"),
        ({"webhook_secret": "a" * 257}, "1-256 letters"),
        ({"webhook_url": "http://bot.example"}, "https://"),
    ],
)
def test_an_incomplete_webhook_is_an_error(change, message):
    with pytest.raises(ValidationError, match=message):
        config(**(WEBHOOK | change))


def test_an_accounts_webhook_is_checked_with_what_it_inherits():
    accounts = {"work": {"token": "2:b", "mode": "webhook"}}
    with pytest.raises(ValidationError, match='account "work"'):
        config(accounts=accounts)
    assert config(webhook_url="https://bot.example", webhook_secret="s", accounts=accounts).account(
        "work"
    )


def test_a_local_bot_api_server_may_call_over_http():
    assert config(**(WEBHOOK | {"webhook_url": "http://10.0.0.2", "api_root": "http://10.0.0.1"}))


def test_no_error_and_no_repr_shows_a_token():
    token = "123456:SECRETSECRETSECRETSECRET"
    with pytest.raises(ValidationError) as caught:
        config(token=token, mode="webhook", accounts={"x": {"token": token}})
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(config(token=token))


TOKEN = "123456:AAbbccddeeffgghhiijjkkllmmnn"


async def test_a_bot_uses_our_transport_alone_and_makes_no_other_client():
    async with new_session() as session:
        bot = LeanBot(TOKEN, "https://api.telegram.org/", session)
        assert {type(request) for request in bot._request} == {AiohttpRequest}
        assert bot.base_url == f"https://api.telegram.org/bot{TOKEN}"
        httpx = sys.modules["httpx"]
        assert not [o for o in gc.get_objects() if type(o) is httpx.AsyncClient]


async def test_a_bot_does_not_show_its_token():
    async with new_session() as session:
        assert TOKEN not in repr(LeanBot(TOKEN, "https://api.telegram.org", session))


@pytest.mark.parametrize("payload", [b"", b"{", b"<html>", b"[" * 100_000])
def test_what_is_not_json_is_an_error_without_its_words(payload):
    with pytest.raises(ValueError):  # noqa: PT011  # any of its kinds
        parse_json(payload)
    with pytest.raises(TelegramError, match=r"^Invalid server response$"):
        AiohttpRequest.parse_json_payload(payload)


EXPECTED = {
    TelegramError("x"): SendTransient,
    NetworkError("x"): SendTransient,
    TimedOut(): SendTransient,
    Conflict("x"): SendTransient,
    InvalidToken(): SendTransient,
    EndPointNotFound("x"): SendTransient,
    PassportDecryptionError("x"): SendTransient,
    BadRequest("Message is too long"): SendRefused,
    BadRequest("Chat not found"): SendUnreachable,
    BadRequest("Not enough rights to send text messages to the chat"): SendUnreachable,
    Forbidden("bot was blocked by the user"): SendUnreachable,
    RetryAfter(dt.timedelta(seconds=7)): SendLater,
    ChatMigrated(-1007): ChatMoved,
}


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_error_of_the_sdk_is_known_here():
    found = {kind for kind in subclasses(TelegramError) if kind.__module__ == "telegram.error"}
    assert found | {TelegramError} == {type(error) for error in EXPECTED}
    assert {kind.__name__ for kind in found} <= set(telegram.error.__all__)


@pytest.mark.parametrize("error", EXPECTED, ids=lambda error: type(error).__name__)
def test_every_error_of_the_sdk_becomes_one_of_the_contract(error):
    assert type(failure(error)) is EXPECTED[error]


@pytest.mark.parametrize("setting", ["1", "0"])
@pytest.mark.filterwarnings("ignore:.*retry_after")
def test_the_wait_is_in_seconds_whichever_type_the_sdk_uses(setting, monkeypatch):
    monkeypatch.setenv("PTB_TIMEDELTA", setting)
    error = failure(RetryAfter(dt.timedelta(seconds=7)))
    assert isinstance(error, SendLater)
    assert error.seconds == 7


def test_a_moved_chat_says_where():
    error = failure(ChatMigrated(-1007))
    assert isinstance(error, ChatMoved)
    assert error.chat == "-1007"


def test_messages_of_errors_carry_no_token():
    words = f"no route to https://api.telegram.org/bot{TOKEN}/sendMessage"
    assert TOKEN not in str(failure(BadRequest(words)))
    assert TOKEN not in redact(words)
    assert redact("bot short:token", "short:token") == "bot [token]"


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("-1007", -1007), ("@name", "@name"), ("", ""), ("٣", 3)]
)
def test_chat_ids_are_numbers_to_telegram(text, expected):
    assert chat_id(text) == expected


def html(markdown):
    found = formatted(markdown)
    assert len(found) == 1
    return telegram_entities.as_html(found[0].text, found[0].entities)


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("plain words.", "plain words."),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ('say "hi"', "say &quot;hi&quot;"),
        ("**b** __b__", "<b>b</b> <b>b</b>"),
        ("*i* _i_", "<i>i</i> <i>i</i>"),
        ("~~s~~", "<s>s</s>"),
        ("***both***", "<i><b>both</b></i>"),
        ("`a<b`", "<code>a&lt;b</code>"),
        ("**`code`**", "<code>code</code>"),
        ("# Title", "<b>Title</b>"),
        ("# A **b**", "<b>A b</b>"),
        ("# Title\n\ntext", "<b>Title</b>\n\ntext"),
        ("- a\n- b", "• a\n• b"),
        ("* a\n  * b\n    * c", "• a\n  • b\n    • c"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("1. a\n\n   more\n2. b", "1. a\n\n  more\n\n2. b"),
        ("- a\n\ntext", "• a\n\ntext"),
        ("-\n- b", "• \n• b"),
        ("- [ ] todo", "• [ ] todo"),
        ("> q\n> r", "<blockquote>q\nr</blockquote>"),
        ("> a\n\n> b", "<blockquote>a</blockquote>\n\n<blockquote>b</blockquote>"),
        ("> a\n\nx\n\n> b", "<blockquote>a</blockquote>\n\nx\n\n<blockquote>b</blockquote>"),
        ("> a\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("> - a\n> - b", "<blockquote>• a\n• b</blockquote>"),
        ("```\nx\n```", "<pre>x</pre>"),
        (
            "```py\nif a < b:\n    pass\n```",
            '<pre><code class="py">if a &lt; b:\n    pass</code></pre>',
        ),
        ('```"><b>\nx\n```', "<pre>x</pre>"),
        ("    indented", "indented"),
        ("a\n\n    code", "a\n\n<pre>code</pre>"),
        ("[t](https://e.example/?a=1&b=2)", '<a href="https://e.example/?a=1&b=2">t</a>'),
        ("[t](/relative)", "t"),
        ("[t](javascript:alert)", "[t](javascript:alert)"),
        ("[](https://e.example)", '<a href="https://e.example">https://e.example</a>'),
        ("[`c`](https://e.example)", '<a href="https://e.example">c</a>'),
        ("![alt](https://e.example/p.png)", '<a href="https://e.example/p.png">alt</a>'),
        (
            "![](https://e.example/p.png)",
            '<a href="https://e.example/p.png">https://e.example/p.png</a>',
        ),
        ("[![alt](https://a.example)](https://b.example)", '<a href="https://b.example">alt</a>'),
        ("a\n\n---\n\nb", "a\n\n──────────\n\nb"),
        ("<b>x</b><script>", "&lt;b&gt;x&lt;/b&gt;&lt;script&gt;"),
        ("<!-- c -->", "&lt;!-- c --&gt;"),
        ("&lt;b&gt; &copy;", "&lt;b&gt; ©"),
        (r"\(x_1*y\) and *\[z_2*y\]*", r"\(x_1*y\) and <i>\[z_2*y\]</i>"),
        ("$a_1*b*c_2$ costs $5 or *$6*", "$a_1*b*c_2$ costs $5 or <i>$6</i>"),
        ("so\n\\[\n- x_1\n= 3\n\\]\nthen", "so\n\n\\[\n- x_1\n= 3\n\\]\n\nthen"),
        ("- $$\n  \\sqrt{*x*}\n  $$\n- b", "• $$\n\\sqrt{*x*}\n$$\n• b"),
        ("a\nb", "a\nb"),
        ("a  \nb", "a\nb"),
        ("2 * 3 * 4 snake_case_name", "2 * 3 * 4 snake_case_name"),
        ("| a | 中 |\n|---|---|\n| **x** | y |", "<pre>a | 中\n--+---\nx | y</pre>"),
    ],
)
def test_markdown_becomes_telegrams_few_entities(markdown, expected):
    assert html(markdown) == expected


@pytest.mark.parametrize("markdown", ["", "   \n\n", "\n"])
def test_a_text_that_shows_nothing_becomes_no_message(markdown):
    assert formatted(markdown) == []


@pytest.mark.parametrize("markdown", ["[a]: https://e.example", ">", "#", "```\n```"])
def test_a_text_of_which_nothing_would_show_is_sent_as_it_is_written(markdown):
    assert [piece.text for piece in formatted(markdown)] == [markdown]


def test_table_columns_align_for_wide_characters():
    lines = formatted("| 名字 | n |\n|--|--|\n| a | 1 |")[0].text.split("\n")
    assert lines == ["名字 | n", "-----+--", "a    | 1"]


def test_half_a_surrogate_pair_is_replaced():
    assert html("bad \ud83d end") == "bad \ufffd end"


@pytest.mark.parametrize("letter", ["a", "中", "😀"])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_the_limit_counts_utf16_units(letter, off):
    text = letter * (LIMIT // units(letter) + off)
    found = formatted(text)
    assert len(found) == (2 if off > 0 else 1)
    assert "".join(piece.text for piece in found) == text
    assert all(units(piece.text) <= LIMIT for piece in found)


def test_a_cut_prefers_line_breaks_then_spaces():
    assert [p.text for p in formatted("aaaa bb\ncc dd", limit=10)] == ["aaaa bb", "cc dd"]
    assert [p.text for p in formatted("aaaa bbbb cccc", limit=10)] == ["aaaa bbbb", "cccc"]
    assert [p.text for p in formatted("aaaabbbbcccc", limit=10)] == ["aaaabbbbcc", "cc"]
    assert [p.text for p in formatted("aaa bbb\n\ncc\ndd", limit=13)] == ["aaa bbb", "cc\ndd"]
    assert [p.text for p in formatted("好好好好好。好好好", limit=8)] == ["好好好好好。", "好好好"]


def test_a_short_code_block_is_not_cut_but_begins_the_next_message():
    found = formatted("Look at this here:\n\n```py\na = 1\nb = 2\n```\n\nDone.", limit=28)
    assert [piece.text for piece in found] == ["Look at this here:", "a = 1\nb = 2\n\nDone."]
    assert [len(piece.entities) for piece in found] == [0, 1]


@pytest.mark.parametrize("limit", [64, 200])
def test_what_is_quoted_bold_or_linked_goes_on_behind_a_cut(limit):
    words = "one two three 😀 four five six " * 10
    found = formatted(f"> **[{words}](https://e.example)**", limit)
    assert len(found) > 1
    for piece in found:
        whole = {"offset": 0, "length": units(piece.text)}
        assert piece.entities == (
            {"type": "blockquote"} | whole,
            {"type": "bold"} | whole,
            {"type": "text_link", "url": "https://e.example"} | whole,
        )


def test_a_cut_code_block_is_closed_and_opened_again():
    found = formatted("```py\n" + "\n".join(f"line {n}" for n in range(10)) + "\n```", limit=40)
    assert len(found) > 1
    for piece in found:
        whole = {"offset": 0, "length": len(piece.text)}
        assert piece.entities == ({"type": "pre", "language": "py"} | whole,)
    assert "\n".join(piece.text for piece in found) == "\n".join(f"line {n}" for n in range(10))


def test_a_cut_code_block_keeps_its_indentation():
    found = formatted("```\nif some_condition:\n    deep\n```", limit=20)
    assert [piece.text for piece in found] == ["if some_condition:", "    deep"]


def test_more_entities_than_telegram_takes_are_left_out():
    found = formatted(" ".join(f"*{n}*" for n in range(101)))
    assert found[0].text == " ".join(map(str, range(101)))
    assert len(found[0].entities) == MAX_ENTITIES


MARKS = st.sampled_from(
    ["*", "**", "_", "~~", "`", "```", "```py\n", "\n", "\n\n", "> ", "- ", "1. ", "# ", "    ",
     "[", "](", "](https://e.example)", ")", "![", "<b>", "</b>", "<", "&", "&lt;", "\\", "|",
     "\n|--|--|\n", "---\n", "a", "word ", "中文", "😀", "\u202e", "\u200b", "\0", "\t",
     "\r\n", '"']
)  # fmt: skip
MARKDOWN = st.lists(MARKS | st.text(max_size=8), max_size=60).map("".join)


@given(MARKDOWN, st.integers(min_value=2, max_value=80))
def test_any_markdown_becomes_messages_that_telegram_takes(markdown, limit):
    for piece in formatted(markdown, limit):
        telegram_entities.check(piece.text, piece.entities)
        assert units(piece.text) <= limit
        assert has_ink(piece.text)


@given(MARKDOWN)
def test_a_cut_loses_only_white_space_and_what_is_formatted_stays_so(markdown):
    def texts(pieces, kind=""):
        for piece in pieces:
            raw = piece.text.encode("utf-16-le")
            whole = {"type": "", "offset": 0, "length": len(raw) // 2}
            for each in (whole, *piece.entities):
                if each["type"] == kind:
                    last = each["offset"] + each["length"]
                    yield raw[2 * each["offset"] : 2 * last].decode("utf-16-le")

    whole, parts = formatted(markdown, 1 << 30), formatted(markdown, 16)
    for kind in ("", "bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"):
        shown, cut = "".join(texts(whole, kind)), "".join(texts(parts, kind))
        assert list(filter(has_ink, shown)) == list(filter(has_ink, cut))


@given(st.text(st.sampled_from("ab cß中😀.,!?()'\"$%/;@#>=+-:1\n{}^"), max_size=80))
def test_the_short_way_for_plain_text_gives_what_the_parser_gives(text):
    quick = parse(text)
    with mock.patch.object(render, "_MARKED", re.compile("")):
        assert parse(text) == quick


@given(st.text(max_size=200), st.integers(min_value=2, max_value=50))
def test_spans_are_in_order_and_within_the_limit(text, limit):
    at = 0
    for start, stop in spans(text, limit):
        assert start >= at
        assert stop > start
        assert units(text[start:stop]) <= limit
        assert not has_ink(text[at:start])
        at = stop
    assert not has_ink(text[at:])


@pytest.mark.parametrize("sign", ["👩‍👩‍👧‍👦", "👍🏽", "❤️", "🇩🇪", "é", "🏴‍☠️"])
@pytest.mark.parametrize("shift", range(12))
def test_a_cut_falls_between_visible_characters(sign, shift):
    text = "x" * shift + sign * 400
    parts = [piece.text for piece in formatted(text, 100)]
    assert "".join(parts) == text
    for part in parts[1:]:
        assert part.startswith(sign)


PACE = Pace()


def part(text="", album="", **fields):
    values = {"message_id": "5", "sender": "7", "sent_at": 1_700_000_000_000} | fields
    chat_type = values.pop("chat_type", "direct")
    return Part(Inbound("telegram", "default", "7", chat_type, text=text, **values), album)


def pending(parts):
    return Pending("7", list(range(len(parts))), parts, 0.0, 0.0)


def patience(parts):
    return pending(parts).waits(0.0, PACE)


def test_parts_of_an_album_belong_together():
    first = part("look", "a", media=(Media("photo", ref="1"),))
    second = part(album="a", message_id="6", media=(Media("photo", ref="2"),), mentions_bot=True)
    third = part("and", "a", message_id="7", reply_to=ReplyTo("3"))
    assert continues([first], second)
    assert patience([first]) == PACE.album
    joined = merged([first, second, third])
    assert [media.ref for media in joined.media] == ["1", "2"]
    assert (joined.text, joined.message_id) == ("look\nand", "7")
    assert (joined.mentions_bot, joined.reply_to) == (True, ReplyTo("3"))


@pytest.mark.parametrize(
    "other", [part("x", "b"), part("x"), part("x", "a", sender="8"), part("x", "a", thread="3")]
)
def test_what_is_of_another_album_or_person_or_topic_does_not_join_it(other):
    assert not continues([part("", "a")], other)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("x" * 4096, "y", "x" * 4096 + "y"),  # cut in the middle of a word
        ("x" * 4000, "y", "x" * 4000 + "\ny"),
        ("😀" * 2000, "y", "😀" * 2000 + "\ny"),
        ("😀" * 2048, "😀", "😀" * 2049),
    ],
)
def test_a_long_paste_is_put_together(first, second, expected):
    parts = [part(first), part(second, message_id="6")]
    assert continues(parts[:1], parts[1])
    assert patience(parts[:1]) == PACE.paste
    assert patience(parts) == 0
    assert merged(parts).text == expected


@pytest.mark.parametrize(
    "other",
    [
        part("/stop"),
        part("y", media=(Media("photo"),)),
        part("y", edit_of="5"),
        part("y", sender="8"),
        part("y", "a"),
        part("y", sent_at=1_700_000_003_000),
        part("y", sent_at=1_699_999_999_000),
    ],
)
def test_what_is_not_a_part_of_the_paste_stays_alone(other):
    assert not continues([part("x" * 4090)], other)


def test_short_texts_are_never_joined():
    assert not continues([part("x" * 3999)], part("y"))
    assert patience([part("x" * 3999)]) == 0


def test_a_message_has_so_many_parts_at_most():
    parts = [part("x" * 4096)] * MAX_PARTS
    assert not continues(parts, part("y"))
    assert patience(parts) == 0


def test_a_message_alone_is_itself():
    alone = part("x")
    assert pending([alone]).message is alone.inbound


def test_a_group_has_so_many_messages_a_minute(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("adapters.telegram.send.time.monotonic", lambda: now[0])
    allowance = Allowance(3, 60)
    for _ in range(3):
        assert allowance.wait("-5") == 0
        allowance.spend("-5")
        allowance.spend("7")
        now[0] += 1
    assert allowance.wait("-5") == 57
    assert allowance.wait("-5", spare=1) == 58
    assert allowance.wait("-6") == allowance.wait("7") == 0
    now[0] += 57
    assert allowance.wait("-5") == 0


def test_one_person_has_half_of_a_groups_messages_and_the_rest_is_for_others(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("adapters.telegram.send.time.monotonic", lambda: now[0])
    allowance = Allowance(20, 60)
    for _ in range(10):
        assert allowance.wait_of("-5", "eve") == 0
        allowance.spend("-5", "eve")
        now[0] += 1
    assert allowance.wait_of("-5", "eve") == 50
    others = ((allowance.wait("-5"), 0), (allowance.wait_of("-5", "ada"), 0))
    elsewhere = ((allowance.wait_of("-6", "eve"), 0), (allowance.wait_of("-5", ""), 0))
    assert all(found == expected for found, expected in (*others, *elsewhere))
    now[0] += 50
    assert allowance.wait_of("-5", "eve") == 0


def test_what_is_known_of_groups_stays_bounded(monkeypatch):
    monkeypatch.setattr("adapters.telegram.send.REMEMBERED", 10)
    allowance = Allowance()
    for chat in range(100):
        for _ in range(30):
            allowance.spend(f"-{chat + 1}")
    assert len(allowance._spent) == 10
    assert all(len(spent) == 20 for spent in allowance._spent.values())


ME = Identity(123456789, "confidant_bot")
ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "language_code": "de"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Tea", "is_forum": True}
CHANNEL = {"id": -1002, "type": "channel", "title": "News"}
DIRECT = {"id": 7, "type": "private", "first_name": "Ada"}
TEXT = "@confidant_bot /new@confidant_bot 👩‍👩‍👧 مرحبا"
BASE = {"message_id": 5, "from": ADA, "date": 1_700_000_000}
SAID = BASE | {"chat": GROUP, "text": TEXT, "entities": mentions_in(TEXT)}
PHOTO = {"photo": [{"file_id": "p", "file_size": 5}], "caption": TEXT, "media_group_id": "a"}
PLACE = {"location": {"latitude": 1, "longitude": 2.5}}
EVERY_KIND = PLACE | {
    "venue": PLACE | {"title": "Café", "address": "Street 1"},
    "contact": {"phone_number": "+49 1", "first_name": "Bob", "last_name": "B"},
    "dice": {"emoji": "🎲", "value": 5},
    "checklist": {"title": "Trip", "tasks": [{"id": 1, "text": "pack"}]},
    "story": {"id": 1, "chat": DIRECT},
    "voice": {"file_id": "v", "mime_type": "audio/ogg", "file_size": 3},
    "sticker": {"file_id": "s", "emoji": "😀"},
    "document": {"file_id": "d", "file_name": "a.pdf"},
    "external_reply": {"origin": {"type": "chat", "chat": CHANNEL}, "message_id": 8},
}
SEEDS = [
    {"message": SAID},
    {"message": BASE | {"chat": DIRECT, "text": "x" * 4096}},
    {"message": BASE | {"chat": GROUP} | PHOTO | {"caption_entities": mentions_in(TEXT)}},
    {"message": SAID | {"message_thread_id": 8, "is_topic_message": True}},
    {"message": SAID | {"sender_chat": GROUP, "author_signature": "boss"}},
    {"message": SAID | {"sender_chat": CHANNEL, "is_automatic_forward": True}},
    {"message": SAID | {"reply_to_message": SAID, "quote": {"text": "x"}}},
    {"message": SAID | {"forward_origin": {"type": "user", "sender_user": ADA}}},
    {"message": BASE | {"chat": GROUP, "poll": {"question": "?", "options": [{"text": "a"}]}}},
    {"message": BASE | {"chat": GROUP, "new_chat_members": [ADA]}},
    {"message": BASE | {"chat": GROUP, "migrate_to_chat_id": -1003}},
    {"message": BASE | {"chat": DIRECT} | EVERY_KIND},
    {"edited_message": SAID | {"edit_date": 1_700_000_009, "location": {"latitude": 1.5}}},
    {"channel_post": BASE | {"chat": CHANNEL, "sender_chat": CHANNEL, "text": "News"}},
    {"callback_query": {"id": "4", "from": ADA, "data": "/compact", "message": SAID}},
    {"my_chat_member": {"chat": GROUP, "from": ADA, "new_chat_member": {"status": "left"}}},
    {"message_reaction": {"chat": GROUP, "message_id": 5, "user": ADA, "new_reaction": []}},
]


def check(inbound):
    for value in (inbound.text, inbound.sender_name, inbound.locale, inbound.message_id):
        value.encode()
        assert "\0" not in value
    assert inbound.text or inbound.media or inbound.foreign
    assert inbound.chat.removeprefix("-").isdecimal()
    assert len(inbound.text) < 25_000
    assert len(inbound.sender_name) < 300
    assert len(inbound.locale) <= 35
    assert len(inbound.thread) <= 20
    assert len(inbound.media) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample(range(1), range(1, rounds(8, few=2))))
def test_any_update_becomes_a_message_or_says_why_not(seed):
    chance, seen = random.Random(seed), Counter()  # noqa: S311  # repeatable is what counts
    for number in range(10_000):
        update = mutated(SEEDS, chance) | {"update_id": number}
        result = normalise(update, "default", ME, 5)
        press_of(update)
        album = album_of(update)
        seen[result.reason if isinstance(result, Ignored) else type(result).__name__] += 1
        if isinstance(result, Inbound):
            check(result)
            part = Part(result, album)
            assert Pending(result.chat, [number], [part], 0.0, 0.0).waits(0.0, Pace()) <= 1.5
            if continues([part], part):
                assert len(merged([part, part]).text) <= 2 * len(result.text) + 1
    assert seen["Inbound"] > 1000
    assert {"malformed", "service", "from_bot", "forged", "empty", "other_bot"} <= seen.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample(range(1), range(1, 4)))
async def test_the_whole_intake_takes_any_batch_and_counts_what_it_drops(seed):
    async def call(method, parameters):
        return True

    chance = random.Random(100 + seed)  # noqa: S311  # repeatable is what counts
    engine, heard = RecordingEngine(), list[Inbound]()
    subject = Updates(
        Supervisor("telegram", "default", engine, waiting="they wait", first=0),
        me=ME,
        sender=SimpleNamespace(call=call, hear=heard.append),
        patience=Pace(album=0, paste=0),
    )
    pushed = 0
    for batch in range(100):
        updates = [mutated(SEEDS, chance) | {"update_id": pushed + n} for n in range(50)]
        pushed += len(updates)
        taken = await subject.take(updates)
        assert (taken.offset, taken.wait) == (pushed, 0), batch
        assert len(subject._done) == len(subject._seen) == 0
    assert heard == engine.received
    dropped, taken_in = sum(engine.drops.values()), len(engine.received) + len(engine.moved)
    # The rest are parts that were put together.
    assert pushed * 0.6 < dropped + taken_in <= pushed
    assert not engine.drops["unreadable"] + engine.drops["fault"]
