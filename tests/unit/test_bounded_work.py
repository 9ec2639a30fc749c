"""No work grows faster than what somebody sent: every pattern, and every function of texts.

What is slow is measured by processor time, again when it seems slow, and by how it grows: a busy
machine makes nothing fail here.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cache

import pytest
from yarl import URL

from adapters.discord import inbound as discord
from adapters.matrix import inbound as matrix
from adapters.nextcloud_talk import inbound as talk
from adapters.slack import inbound as slack
from adapters.telegram import inbound as telegram
from adapters.web import hooks
from bot.agent import offline, recall
from bot.agent.models import capabilities, output, wire
from bot.agent.tools import MemoryPassage, ToolContext, TurnMemory, provenance
from bot.agent.tools.mcp import servers
from bot.agent.tools.search import MAX_QUERY
from bot.agent.tools.web import fetch
from bot.channel import Address, Inbound
from bot.channel.http import Visitor
from bot.channel.kit import markdown_html
from bot.context import prompt, sentences
from bot.dashboard import conversations, temporary
from bot.dashboard.browsers import HOOK_MARK, is_signed
from bot.dashboard.memory import browsing
from bot.gateway.reminders import MOST_WORDS, is_about
from bot.identity import access
from bot.identity.access import ToolRights
from bot.identity.view import MemoryView
from bot.importing import values as importing
from bot.memory import chunking, claims, folders, listing, markdown, periods, words
from bot.memory.night import edits, proposals, rules
from bot.memory.notes import Place
from bot.memory.search import Hit
from bot.messages import Message, Quote, Text
from bot.sessions import due_time
from tests import foreign, patterns
from tests.fakes.nextcloud import payload
from tests.patterns import held

# Patterns that are only given short texts, and of how many characters at most: they are cut before,
# or a standard bounds them.
SHORT = {
    "adapters.discord.render._PICTURE": 2_000,  # LIMIT
    "bot.agent.models.capabilities._KEY": 400,  # twice MOST_TOLD
    "bot.agent.models.wire._BEHIND": 200,  # _LONGEST_END
    "bot.agent.turn._LAST_TOKEN": 40,  # _LONGEST
    "bot.agent.turn._OPEN_TOKEN": 40,
    "bot.cli.archives._without_password": 300,  # an address in the owner's configuration
    "bot.importing.openclaw.people._FILE": 255,  # the name of a file
    "bot.sessions.erasing._FROM": 600,  # a line of ours, with a name of at most MAX_QUOTE
    "bot.importing.openclaw.transcripts._FILE": 255,
    "bot.memory.night.rules._TABLE": 300,  # MOST_SLOTS
    "bot.storage.schema._DEMANDS": 500,  # our own SQL
}
# Patterns that are put together while the program runs, each as it is made of common words.
MADE: dict[str, Callable[[], Iterable[re.Pattern]]] = {
    "adapters.nextcloud_talk.inbound._name_pattern": lambda: [talk._name_pattern("Nova aa")],
    "bot.agent.models.capabilities._to_completions": lambda: [
        re.compile(each) for at, of, _ in capabilities._WAYS for each in (at, of)
    ],
    "bot.agent.models.output._marker": lambda: held((output._MARKERS, output._PART, output._REST)),
    "bot.channel.kit.markdown_html.is_allowed_maths": lambda: map(
        re.compile, markdown_html._VALUES.values()
    ),
    "bot.identity.access._typed": lambda: held(access._typed()),
    "bot.identity.access._compiled": lambda: map(access._compiled, access._patterns_of("Nova aa")),
    "bot.memory.night.rules._TABLE": lambda: held(rules._TABLE),
    "bot.memory.periods._WRITTEN": lambda: held(periods._WRITTEN),
}
# Those made of what only a call knows: the function that is tried instead.
CALLED = {
    "bot.agent.models.capabilities._is_named": "bot.agent.models.capabilities.refused_options",
    "bot.agent.models.capabilities._phrase": "bot.agent.models.capabilities.read",
    "bot.agent.tools.web.fetch.is_mentioned": "bot.agent.tools.web.fetch.is_mentioned",
    "bot.channel.config.check_patterns": "",  # the owner's own; it looks at nothing
    "bot.channel.kit.text._torn": "bot.channel.kit.text.split",
    "bot.context.sentences.phrases": "bot.context.wishes.read",
    "bot.context.sentences.requests.whole": "bot.context.wishes.asks_to_read",
    "bot.dashboard.conversations.marked": "bot.dashboard.conversations.marked",
    "bot.portability.schedule.found": "",  # names in the owner's folder of backups
    "bot.sessions.time_words.compiled": "bot.sessions.due_time.parse",
}


@cache
def sites() -> tuple[patterns.Site, ...]:
    """Found by the first test that asks: the source of everything is parsed."""
    return tuple(patterns.sites())


def made(site: patterns.Site) -> Iterable[re.Pattern]:
    if site.patterns is not None:
        return site.patterns
    return MADE[site.name]() if site.name in MADE else ()


def test_every_pattern_of_the_program_is_known():
    unknown = {site.name for site in sites() if site.patterns is None}
    assert unknown == MADE.keys() | CALLED.keys()
    assert SHORT.keys() <= {site.name for site in sites()}
    assert len(sites()) > 250


@pytest.mark.parametrize("part", range(4))
def test_no_pattern_takes_more_than_linear_time(part):
    assert slow_sites(part, rounds=1) == []


@pytest.mark.proof
@pytest.mark.parametrize("part", range(4))
def test_no_pattern_takes_more_than_linear_time_for_many_more_texts(part):
    assert slow_sites(part, rounds=8) == []


def slow_sites(part: int, rounds: int) -> list[str]:
    found: list[str] = []
    tried: set[object] = set()
    for site in sites()[part::4]:
        for pattern in made(site):
            if (key := (pattern, site.how, site.name in SHORT)) in tried:
                continue
            tried.add(key)
            seed, longest = patterns.seeded(site.name), SHORT.get(site.name)
            if slow := patterns.slow_text(pattern, site.how, seed, rounds, longest):
                found.append(f"{site.name}: {slow}")
    return found


@pytest.mark.parametrize(
    ("pattern", "how"),
    [
        (r"(a+)+$", "match"),
        (r"\s+$", "sub"),
        (r"<!--[^>]*-->", "search"),
        (r"(?:\w+\.)+\w+@", "search"),
        (r"^(?:a|aa)+$", "fullmatch"),
        (r'"(?:[^"\\]+|\\.)*"', "match"),
    ],
)
def test_a_pattern_that_takes_long_is_found(pattern, how):
    assert patterns.slow_text(re.compile(pattern), frozenset({how}), patterns.seeded(pattern))


def test_a_pattern_is_tried_in_the_way_it_is_used():
    every = {site.name: site for site in sites()}
    assert every["bot.net.addresses._NAME"].how == {"fullmatch"}
    assert every["bot.dashboard.memory.browsing._BOX"].how == {"sub"}


# --- functions ------------------------------------------------------------------------------------

# Where texts are nobody else's than the owner's, or are read in a process with limits of its own.
NOT_OTHERS = (
    *("bot.settings.", "bot.cli.", "bot.config.", "bot.testing.", "bot.doctor.", "bot.storage.p"),
    *("bot.storage.backup", "bot.storage.changes", "bot.portability.", "bot.cluster."),
    *(
        "bot.files.",
        "bot.speech.program.",
        "bot.memory.note_store.",
        "bot.agent.tools.web.ddgs_program.",
    ),
)
# Functions whose texts are cut before, and after how many characters.
CUT = {
    "bot.agent.models.wire.arguments_in": 4_000,  # REPAIRABLE, and MOST_READS
    "bot.agent.models.wire.use_of": 4_000,
    "bot.agent.models.output.calls_in": 4_000,
    "bot.agent.models.output.is_whole_call": 4_000,
    "bot.channel.kit.markdown_html.mathml": 1_000,  # MOST_FORMULA
    "bot.channel.kit.markdown_html.coloured": 5_000,  # MOST_CODE
    "bot.context.sentences.is_unwanted": 4_000,  # LONGEST_MESSAGE
    "bot.context.sentences.only_asks": 4_000,
    "bot.net.proxy.parse": 500,  # the owner's, or of the environment
}
# Those that parse Markdown: linear, but not in a moment. Seconds for each character.
MARKDOWN = 8e-5
PARSING = (
    *("bot.channel.kit.markdown_html.", "bot.channel.kit.text.", "bot.dashboard.memory.browsing."),
    *("adapters.telegram.render.", "adapters.discord.render.", "adapters.nextcloud_talk.send."),
    "bot.speech.api.",
)
DAY = date(2026, 11, 28)
AGING = claims.Aging(DAY)
VIEW = MemoryView("main", ("a",), private=True)
ADDRESS = URL("https://www.example.org/a/b?c=d")
ROOM = discord.Room("direct", "1")


def said_in(text: str) -> ToolContext:
    """A turn whose person said a text, line by line."""
    seen = tuple(Message("user", (Text(line),)) for line in text.split("\n"))
    memory = TurnMemory(seen=seen, foreign=[text])
    return ToolContext(VIEW, "s", datetime(2026, 11, 28, tzinfo=UTC), memory=memory)


def recalled(text: str) -> None:
    hit = Hit("main", "memory/a.md", 1, 9, 0.5, text, "memory", words=0.5, meaning=0.5)
    quote = Quote(("memory/a.md", "found"), text, "memory/a.md", 1)
    said = recall.Find(quote, text, id="e", date="2026-11-28 10:00")
    found = recall._Found((recall.Find(quote, text, hit=hit),), (said,), is_whole=True)
    recall._lines_of(found, recall.Shown(window=200_000, texts=(text,)), 2_400)
    recall._passages_of([said], found, text, 2_400, 12)


def telegram_update(text: str) -> object:
    chat, sender = {"id": 5, "type": "private"}, {"id": 5, "first_name": text}
    entities = [{"type": "mention", "offset": n, "length": 9} for n in range(0, 100, 9)]
    message = {"message_id": 1, "date": 1, "chat": chat, "from": sender, "text": text}
    return {"update_id": 1, "message": message | {"entities": entities}}


# Functions that take more than texts: each as it is called with one.
CALLS: dict[str, Callable[[str], object]] = {
    "bot.agent.recall": recalled,
    "bot.dashboard.conversations.marked": lambda text: list(
        conversations.marked(text, text[:400].split())  # a question has no more
    ),
    "bot.agent.recall.is_near": lambda text: recall.is_near((), text),
    "bot.agent.offline.best_lines": lambda text: offline.best_lines(text, [Quote(("a",), text)]),
    "bot.agent.models.wire.count": lambda text: wire.count({"a": text}, "a"),
    "bot.agent.models.capabilities.refused_options": lambda text: capabilities.refused_options(
        {"top_k": 1, "thinking": {"budget": 1}}, text
    ),
    "bot.agent.tools.provenance.provenance_of": lambda text: provenance.provenance_of(
        text, said_in(text)
    ),
    "bot.agent.tools.provenance.is_asked_for": lambda text: provenance.is_asked_for(
        text, said_in(text)
    ),
    "bot.context.sentences.shared": lambda text: sentences.shared(
        sentences.terms(text[:400]), text
    ),
    "bot.agent.tools.provenance.already": lambda text: provenance.already(
        text[:1_000], [MemoryPassage(Place("a.md", 1), text)], {"b.md": text}
    ),
    "bot.agent.tools.web.fetch.is_mentioned": lambda text: fetch.is_mentioned(ADDRESS, [text]),
    "bot.agent.tools.mcp.servers.reduced": lambda text: servers.reduced(
        "tools/list", {"tools": [{"name": text, "description": text, "inputSchema": {"a": text}}]}
    ),
    "bot.identity.access.permission": lambda text: access.permission(
        (ToolRights(),), text, built_in=False
    ),
    "bot.importing.values.merged": lambda text: importing.merged(text, (), (), "2026-11-28"),
    "bot.dashboard.memory.browsing.of_note": lambda text: browsing.of_note(
        "en", "memory/a.md", text, 1, AGING, space="main", changes=True
    ),
    "bot.context.prompt.spared": lambda text: prompt.spared(text, [(1, 9)], 1_000),
    "bot.memory.markdown.replace_section": lambda text: markdown.replace_section(
        text,
        text,
        text,
        " <!-- agent -->",  # the mark is the program's
    ),
    "bot.memory.words.parse": lambda text: words.parse(text[:MAX_QUERY], str.split),
    "bot.memory.listing.snippet_meanings": lambda text: listing.snippet_meanings(text, [0.5] * 9),
    "bot.memory.claims.without_faded": lambda text: claims.without_faded(
        "memory/a.md", text, AGING, "main", DAY
    ),
    "bot.memory.claims.strengths": lambda text: claims.strengths(
        "memory/a.md", text, AGING, "main"
    ),
    "bot.memory.claims.of_note": lambda text: list(claims.of_note("memory/a.md", text)),
    "bot.sessions.due_time.next_time": lambda text: due_time.next_time(
        f"next time I say {text}: x"
    ),
    "bot.gateway.reminders.is_about": lambda text: is_about(text[:MOST_WORDS], text[:120], 0.3),
    "bot.memory.chunking.of_note": lambda text: chunking.of_note("memory/a.md", text),
    "bot.memory.folders.front_matter": lambda text: folders.front_matter(f"---\n{text}\n---\n"),
    "bot.memory.night.edits.entries": lambda text: [
        (each.comment, edits.is_plain(each), edits.words(each)) for each in edits.entries("a", text)
    ],
    "bot.memory.night.proposals.read": lambda text: proposals.read(text, ()),
    "adapters.discord.inbound.normalise": lambda text: discord.normalise(
        "MESSAGE_CREATE",
        {"id": "1", "channel_id": "1", "content": text, "author": {"id": "5", "username": text}},
        "default",
        discord.Identity("9", "Nova"),
        ROOM,
    ),
    "adapters.slack.inbound.plain": lambda text: slack.plain(
        text, slack.Identity("U1", "Nova"), {}
    ),
    "adapters.telegram.inbound.normalise": lambda text: telegram.normalise(
        telegram_update(text), "default", telegram.Identity(99, "nova_bot")
    ),
    "bot.dashboard.temporary.parse": lambda text: temporary.parse(
        json.dumps({"lines": [text[: temporary.MOST_TEXT // 4]] * 3}).encode()
    ),
    "adapters.web.hooks.event": lambda text: hooks.event(
        Visitor(template=text), {"webhook-id": text}, text.encode(), 0
    ),
    "bot.dashboard.browsers.is_signed": lambda text: is_signed(
        f"{HOOK_MARK}AAAA",
        {"webhook-id": text, "webhook-timestamp": text, "webhook-signature": text},
        text.encode(),
        0,
    ),
    "adapters.matrix.inbound.reaction_of": lambda text: matrix.reaction_of(
        {
            "sender": text,
            "content": {
                "m.relates_to": {"rel_type": "m.annotation", "event_id": text, "key": text}
            },
        },
        matrix.Identity("@bot:hs"),
        Address("matrix", "default", "!r"),
        "group",
        text,
    ),
    "adapters.matrix.inbound.normalise": lambda text: matrix.normalise(
        {
            "type": "m.room.message",
            "content": {
                "body": text,
                "formatted_body": text,
                "m.relates_to": {"m.in_reply_to": {"event_id": "$a"}},
            },
        },
        matrix.Identity("@bot:hs", name="Nova"),
        Inbound("matrix", "default", "!r", "group", "@ada:hs", "$e", "", 0),
        before={"type": "m.room.message", "content": {"body": text}},
    ),
    "adapters.nextcloud_talk.inbound.normalise": lambda text: talk.normalise(
        payload(text), talk.Identity("default", "Nova"), 1
    ),
}
# Functions of other things than texts, for all that one is among them.
OTHERS = {
    "adapters.discord.interactions.normalise": "a press of a button: the service bounds its fields",
    "adapters.nextcloud_talk.history.read": "the same fields as inbound.normalise",
    "bot.agent.models.capabilities.option_fields": "the owner's options",
    "bot.backoff.keep": "a name of the program's own",
    "bot.importing.values.made": "looks at no text",
    "bot.memory.listing.snippet": "a chunk of at most 400 tokens",
    "bot.memory.night.edits.is_made": "one digest for each of edits.entries",
    "bot.memory.night.edits.moving": "one entry of at most MOST_CHARACTERS",
    "bot.memory.uses.says": "the digests of words",
    "bot.storage.records.from_json": "what the program itself has stored, read by pydantic",
    "bot.push.encryption.sealed": "a note of at most 1024 bytes",
}


@cache
def registry() -> tuple[dict[str, Callable[[str], object]], set[str]]:
    """The functions to try by name, and those that need more than texts and are in no table."""
    found, unknown = dict(CALLS), set[str]()
    for name, function in foreign.functions():
        if name.rpartition(".")[2].startswith("_") or name.startswith(NOT_OTHERS):
            continue
        if name in CALLS or name in OTHERS or foreign.acts(function):
            continue
        call = foreign.caller(function)
        if call is None:
            unknown.add(name)
        else:
            found[name] = call
    return found, unknown


def test_every_function_of_somebodys_text_is_tried_or_named():
    functions, unknown = registry()
    assert sorted(unknown) == []
    assert CUT.keys() <= functions.keys()
    assert len(functions) > 200
    tried = set(filter(None, CALLED.values()))
    assert tried <= functions.keys()


@pytest.mark.parametrize("part", range(4))
def test_no_function_takes_more_than_linear_time(part):
    pieces = ("a.", " ", "\n", "*_", "((", "2024-01-01 ", "- a\n", "\u0301", "<!-- ", "中")
    assert slow_functions(part, 4, pieces, foreign.SIZES[:2]) == []


@pytest.mark.proof
@pytest.mark.parametrize("part", range(20))
def test_no_function_takes_more_than_linear_time_for_many_more_texts(part):
    seed = patterns.seeded(str(part))
    mixed = ["".join(seed.choices(patterns.PIECES, k=3)) for _ in range(10)]
    assert slow_functions(part, 20, (*patterns.PIECES, *mixed)) == []


def slow_functions(
    part: int, parts: int, pieces: Iterable[str], sizes: Sequence[int] = foreign.SIZES
) -> list[str]:
    functions, _ = registry()

    def slow(name: str, piece: str) -> int:
        rate = MARKDOWN if name.startswith(PARSING) else foreign.RATE
        return foreign.slow_length(functions[name], piece, CUT.get(name, 80_000), rate, sizes)

    return [
        f"{name}({piece!r} × …) of {length} characters"
        for name in sorted(functions)[part::parts]
        for piece in pieces
        if (length := slow(name, piece))
    ]


def test_a_function_that_takes_long_is_found(monkeypatch):
    monkeypatch.setattr(foreign, "SLOW", 0.002)  # a faster function tells the same

    def compares(text: str) -> int:
        return sum(one == other for one in text for other in text)

    assert foreign.slow_length(compares, "a", sizes=(600,))  # takes 0.01 s


# --- what the documents say -----------------------------------------------------------------------

BOUND = re.compile(r"`((?:bot|adapters)\.[a-z_.]+\.|…)([A-Z_]+)`")


def test_the_table_of_parsers_names_bounds_that_are_there():
    page = (patterns.ROOT / "docs" / "security.md").read_text()
    table = page.partition("## Where others' input meets a parser")[2].partition("\n## ")[0]
    module, found = "", 0
    for named, constant in BOUND.findall(table):
        module = module if named == "…" else named.rstrip(".")
        assert isinstance(getattr(importlib.import_module(module), constant), int | float)
        found += 1
    assert found == table.count("`bot.") + table.count("`adapters.") + table.count("`…")
    assert found > 30
