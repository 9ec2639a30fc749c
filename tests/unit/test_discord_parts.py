"""The small parts of the Discord channel: limits, menus, pieces, drafts, errors."""

import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.discord.account import Pace
from adapters.discord.api import RateLimits, Unreachable, file_name, reason
from adapters.discord.drafts import nonce, shortened
from adapters.discord.menu import payload
from adapters.discord.render import rendered
from adapters.discord.sdk import Route, discord
from adapters.discord.send import failure, messages, rows
from bot.channel import Address, Attachment, Button, Command, Outbound
from bot.channel.kit.supervisor import Backoff
from bot.channel.kit.text import units
from bot.errors import SendLater, SendRefused, SendTransient


def answered(status, kind=discord.HTTPException, code=0, message="words"):
    response = SimpleNamespace(status=status, reason="x")
    return kind(response, {"code": code, "message": message})


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (discord.RateLimited(3.0), SendLater),
        (Unreachable("x"), SendTransient),
        (discord.DiscordException(), SendTransient),
        (answered(500, discord.DiscordServerError), SendTransient),
        (answered(401), SendTransient),
        (answered(408), SendTransient),
        (answered(403, discord.Forbidden), SendTransient),
        (answered(403, discord.Forbidden, 50013), SendRefused),
        (answered(404, discord.NotFound, 10003), SendRefused),
        (answered(400, code=50035), SendRefused),
    ],
)
def test_every_error_of_the_sdk_is_one_of_the_contract(error, ours):
    assert type(failure(error)) is ours


def test_a_reason_is_short_and_on_one_line():
    said = reason(answered(400, code=5, message="a\n" + "x" * 1000))
    assert "\n" not in said
    assert len(said) < 250
    assert reason(ValueError("secret")) == "ValueError"


def test_a_refusal_that_lasts_never_costs_the_token():
    pace = Pace()
    assert 24 * 3600 / pace.rejected < 1000  # Discord resets it at 1000 identifies a day
    restarts = Backoff(pace.first, pace.rejected)
    assert 24 * 3600 / [restarts.next() for _ in range(10)][-1] < 1000


def test_limits_are_kept_by_bucket_and_channel():
    now = [0.0]
    limits = RateLimits(lambda: now[0])
    path = "/channels/{channel_id}/messages"
    here, there = Route("POST", path, channel_id="1"), Route("POST", path, channel_id="2")
    headers = {"X-RateLimit-Bucket": "b", "X-RateLimit-Remaining": "1"}
    limits.learn(here, headers | {"X-RateLimit-Reset-After": "5"})
    assert limits.wait(here) == 0
    limits.take(here)
    assert limits.wait(here) == 5
    assert limits.wait(there) == 0
    now[0] = 5.5
    assert limits.wait(here) == 0
    limits.refused(there, 2, everywhere=True)
    assert limits.wait(here) == 2
    limits.learn(here, {"X-RateLimit-Remaining": "odd", "X-RateLimit-Reset-After": "1"})


def test_limits_do_not_grow_for_ever():
    now = [0.0]
    limits = RateLimits(lambda: now[0])
    for number in range(5000):
        now[0] += 1
        limits.refused(
            Route("GET", "/channels/{channel_id}", channel_id=number), 1, everywhere=False
        )
    assert len(limits._buckets) <= 1025


def test_a_menu_keeps_discords_rules():
    menus = {
        "": [
            Command("new", "d" * 200, "[model]"),
            Command("Bad Name", "x"),
            *[Command(f"c{n}", "") for n in range(200)],
        ],
        "zh": [Command("new", "新", "")],
        "tlh": [Command("new", "x")],
    }
    made = payload(menus)
    assert len(made) == 100
    assert len(made[0]["description"]) == 100
    assert made[0]["description_localizations"] == {"zh-CN": "新", "zh-TW": "新"}
    assert made[0]["options"][0]["description_localizations"] == {"zh-CN": "new", "zh-TW": "new"}
    assert all(command["description"] for command in made)


def test_pieces_hold_what_one_message_takes():
    def cut(*sizes: int, text="x"):
        files = tuple(Attachment("a", "", b"x" * size) for size in sizes)
        made = messages(Outbound("o", Address("discord", "a", "1"), text, attachments=files))
        return [(part.text, [len(f.data) for f in part.attachments]) for part in made]

    assert cut() == [("x", [])]
    with pytest.raises(SendRefused, match="nothing to show"):
        cut(text=" \u200b")
    assert cut(5, text="") == [("", [5])]
    assert cut(0, 10_000_001, 7) == [("x", [7])]
    assert cut(6_000_000, 6_000_000) == [("x", [6_000_000]), ("", [6_000_000])]


def test_rows_have_five_buttons_and_there_are_five():
    made = rows(tuple(Button("l" * 100, f"/b {n}") for n in range(40)))
    assert [len(row["components"]) for row in made] == [5] * 5
    assert len(made[0]["components"][0]["label"]) == 80


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Once", "Once ▍"),
        ("```py\nx = 1", "```py\nx = 1\n```\n▍"),
        ("```py\nx\n```\nand", "```py\nx\n```\nand ▍"),
    ],
)
def test_a_draft_shows_that_it_goes_on(text, shown):
    assert shortened(text) == shown


@pytest.mark.parametrize("text", ["x" * 5000, "中" * 5000, "😀" * 5000, "```\n" + "y" * 5000])
def test_a_draft_is_never_too_long(text):
    assert len(shortened(text).encode("utf-16-le")) // 2 <= 2000


@pytest.mark.parametrize("letter", ["é", "😀", "中"])
def test_one_other_letter_does_not_shorten_a_draft(letter):
    text = letter + "x" * 1880
    assert shortened(text) == f"{text} ▍"
    assert units(shortened(letter + "x" * 5000)) >= 1900


@given(st.text(alphabet=st.sampled_from("xé中😀-"), max_size=4000))
def test_a_draft_shows_as_much_as_fits_and_no_half_of_a_letter(text):
    kept = shortened(text).removesuffix(" ▍").removesuffix(" …")
    assert text.startswith(kept)
    assert min(units(text), 1899) <= units(kept) <= 1900


def test_names_are_made_fit():
    assert len(nonce("x" * 500)) <= 25
    assert nonce("a") != nonce("b")
    assert file_name(Attachment('a"b\r\n/..c.png', "", b"")) == "a_b___..c.png"
    assert file_name(Attachment("", "", b"")) == "file"


def test_waits_double_to_their_limit():
    backoff = Backoff(1, 3)
    assert [backoff.next() for _ in range(3)] == [1, 2, 3]
    backoff.reset()
    assert backoff.next() == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain | text", "plain | text"),
        ("#### Deep **one**\n# Top", "**Deep one**\n# Top"),
        ("##### a # b ## \n#### ##\n#### ", "**a # b**\n#### ##\n#### "),
        ("![cat](https://e.org/c.png) `![x](y)`", "[cat](https://e.org/c.png) `![x](y)`"),
        ('![a](b "c d") ![e]( f) ![g]()', "[a](b) ![e]( f) ![g]()"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |\nend", "```\na | b\n--+--\n1 | 2\n```\nend"),
        ("a|b\n-|-\n中文|x\\|y", "```\na    | b\n-----+----\n中文 | x|y\n```"),
        ("```\n| a | b |\n|---|---|\n#### x\n```", "```\n| a | b |\n|---|---|\n#### x\n```"),
        ("| a | b |\n|---|---|", "```\na | b\n--+--\n```"),
    ],
)
def test_what_discord_does_not_show_is_made_readable(text, shown):
    assert rendered(text) == shown


@pytest.mark.parametrize("text", ["#### x" + " " * 1990 + "x", "![](" * 500, "![a](x" * 333])
def test_no_text_takes_long_to_render(text):
    began = time.process_time()
    rendered(text)
    assert time.process_time() - began < 0.5


def test_a_table_that_would_be_too_long_stays_as_it_is():
    table = (
        "| a | b |\n|---|---|\n" + "| 1 |\n" * 100 + "| " + "x" * 40 + " | y |\n" + "|1|2|\n" * 150
    )
    assert units(table) <= 2000
    assert rendered(table) == table
