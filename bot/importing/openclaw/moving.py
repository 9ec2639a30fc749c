"""Moving in from OpenClaw: what there is, what of it is new here, and bringing it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.errors import ImportRefused, ToolError
from bot.identity import PolicySnapshot, routing
from bot.importing import storing
from bot.importing.openclaw import home, jobs, people, transcripts
from bot.importing.openclaw.home import Home
from bot.importing.openclaw.jobs import Job
from bot.importing.openclaw.people import Seat, channel_of
from bot.importing.storing import Brought, Count, Notes, Owner
from bot.importing.values import Remembered, Skipped, Talk, count, items, mapping, pieces, words
from bot.memory import exchange, layout
from bot.memory.exchange import ExchangeError
from bot.memory.note_store import NoteStore
from bot.settings.loader import toml_key, toml_value
from bot.storage import Database, files
from bot.unicode import well_formed

# The notes of an OpenClaw workspace, brought into the owner's.
#
# What it remembered (MEMORY.md, USER.md, the notes of days and topics) is added to the notes of
# the same names, day by day, marked as imported. Its character (SOUL.md, IDENTITY.md) is taken
# where nobody has written one here. How it worked (AGENTS.md and others) is its own, and stays
# there.


def _character(
    store: NoteStore, name: str, file: Path, *, is_rehearsal: bool
) -> Brought | Skipped | None:
    """Take a file about the bot's character, where nobody has written one here."""
    try:
        text, before = storing.read(name, file)[0], exchange.text_of(store, name)
        if before == text:
            return None
        if home.is_untouched(pieces(text)):
            return Skipped(name, "it is as OpenClaw made it")
        if before is not None and before != layout.templates().get(name):
            return Skipped(name, "there is one here that somebody wrote; compare them")
        if not is_rehearsal:
            exchange.write(store, exchange.Change(name, before or "", text))
    except (ExchangeError, ToolError, OSError) as exc:
        return Skipped(name, str(exc))
    return Brought(name, count(text), is_new=before is None)


OWNERS = "you"  # as `Report.whose` has it, and
ROOMS = "rooms"


@dataclass(slots=True)
class Report:
    """The plan of a move, or its result.

    `whose` counts conversations by whose they are: a person's, `OWNERS`, `ROOMS`. `unclear` counts
    those of which nothing says it, `work` those in which nobody was talked with. `left` is what is
    not brought, and why. `settings` is the proposal, empty when there is nothing to propose or it
    is there already.
    """

    notes: list[Brought] = field(default_factory=list[Brought])
    talks: Count = field(default_factory=Count)
    whose: Counter[str] = field(default_factory=Counter[str])
    unclear: int = 0
    work: int = 0
    seats: list[Seat] = field(default_factory=list[Seat])
    jobs: list[Job] = field(default_factory=list[Job])
    settings: str = ""
    left: list[Skipped] = field(default_factory=list[Skipped])

    @property
    def is_nothing(self) -> bool:
        """True when nothing is new."""
        return not (self.notes or self.talks.messages or self.seats or self.jobs or self.settings)


@dataclass(frozen=True, slots=True)
class Move:
    """One move: from where, by which configuration and books, and to where.

    `folder` is where the proposal is put. `is_mine` makes conversations the owner's of which
    nothing says whose they are.
    """

    home: Home
    snapshot: PolicySnapshot
    folder: Path
    store: NoteStore
    is_mine: bool
    now: int
    tell: Callable[[int], object] = lambda _done: None
    _owners: dict[str, Owner] = field(default_factory=dict[str, Owner], repr=False, compare=False)

    async def run(self, database: Database | None, *, is_rehearsal: bool) -> Report:
        """Bring everything that is new, or only look what that would be.

        Each part is whole when it is stored, and known again: this can be interrupted anywhere, and
        run again.

        Raises:
            ImportRefused: something of it cannot be read.
            StorageError: the disk does not take it; what was brought stays.
        """
        report = Report()
        if not is_rehearsal:
            await asyncio.to_thread(self._prepare)
        await self._notes(database, report, is_rehearsal=is_rehearsal)
        await self._people(database, report, is_rehearsal=is_rehearsal)
        report.talks = await storing.bring(
            database, self._talks(report), self._whose, self.now, is_rehearsal=is_rehearsal
        )
        report.left += report.talks.skipped
        await self._jobs(database, report, is_rehearsal=is_rehearsal)
        await asyncio.to_thread(self._settings, report, is_rehearsal=is_rehearsal)
        return report

    # --- notes ------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """A new workspace gets what it begins with first: with a note in it, it gets none."""
        self.store.make()
        self.store.prepare()

    async def _notes(
        self, database: Database | None, report: Report, *, is_rehearsal: bool
    ) -> None:
        workspace = self.home.workspace
        if workspace is None:
            return
        mine = Notes(database, self.store, routing.OWNER, self.now, is_rehearsal)
        below = (layout.NOTES_FOLDER,)
        for name, file in await asyncio.to_thread(lambda: [*storing.files(workspace, below=below)]):
            done: Brought | Skipped | None
            if name in storing.CHARACTER:
                done = _character(self.store, name, file, is_rehearsal=is_rehearsal)
            else:
                found = await asyncio.to_thread(storing.remembered, workspace, file)
                if isinstance(found, Remembered):
                    written = home.written(pieces(found.text))
                    done = await mine.bring(found.path, written, found.at)
                else:
                    done = found
            if isinstance(done, Skipped):
                report.left.append(done)
            elif done is not None:
                report.notes.append(done)

    # --- people -----------------------------------------------------------------------------------

    async def _people(
        self, database: Database | None, report: Report, *, is_rehearsal: bool
    ) -> None:
        found = await asyncio.to_thread(lambda: list(people.let_in(self.home)))
        report.left += [each for each in found if isinstance(each, Skipped)]
        seats = [each for each in found if isinstance(each, Seat)]
        if database is not None:
            seats = await database.read(lambda tx: people.new(tx, seats))
            if seats and not is_rehearsal:
                await database.write(lambda tx: people.admit(tx, seats, self.now))
        report.seats = seats

    # --- reminders and tasks ----------------------------------------------------------------------

    async def _jobs(self, database: Database | None, report: Report, *, is_rehearsal: bool) -> None:
        folder, now = self.home.folder, self.now
        planned = jobs.planned(folder, self.snapshot, now)
        found = await asyncio.to_thread(lambda: list(planned))
        report.left += [each for each in found if isinstance(each, Skipped)]
        report.jobs = [each for each in found if isinstance(each, Job)]
        if database is not None:
            wanted = report.jobs
            report.jobs = await database.read(lambda tx: jobs.new(tx, wanted))
            if report.jobs and not is_rehearsal:
                await database.write(lambda tx: jobs.store(tx, report.jobs, now))

    # --- conversations ----------------------------------------------------------------------------

    def _talks(self, report: Report) -> Iterator[Talk | Skipped]:
        """Every conversation that is somebody's; whose it is stands before its own id."""
        seen: set[str] = set()
        for agent in self.home.agents:
            for session in transcripts.sessions(agent):
                self.tell(1)
                if isinstance(session.talk, Skipped):
                    yield session.talk
                    continue
                key = people.parse(session.key)
                owner = people.owner_of(key, self.snapshot)
                if key.is_work:
                    report.work += 1
                elif owner is None and not self.is_mine:
                    report.unclear += bool(session.talk.said)
                else:
                    self._owners[session.talk.id] = owner or Owner(routing.OWNER)
                    if session.talk.said and session.talk.id not in seen:
                        seen.add(session.talk.id)
                        report.whose[_label(self._owners[session.talk.id])] += 1
                    yield session.talk

    def _whose(self, talk: Talk) -> Owner:
        return self._owners[talk.id]

    # --- settings ---------------------------------------------------------------------------------

    def _settings(self, report: Report, *, is_rehearsal: bool) -> None:
        if self.home.unread:
            report.left.append(Skipped("the settings", self.home.unread))
        if not self.home.settings:
            return
        path, text = self.folder / PROPOSAL, proposed(self.home.settings)
        try:
            before = path.read_text("utf-8") if path.exists() else None
            if before == text:
                return
            if before is not None:
                report.left.append(Skipped(str(path), "it is there already, and says otherwise"))
                return
            if not is_rehearsal:
                files.put(path, text.encode())
        except (OSError, UnicodeDecodeError) as exc:
            raise ImportRefused(
                f"{path} cannot be written. What was brought stays; the same command goes on."
            ) from exc
        report.settings = text


def _label(owner: Owner) -> str:
    if owner.room:
        return ROOMS
    return OWNERS if owner.person == routing.OWNER else owner.person


# The settings of OpenClaw as a `confidant.toml` to be read, and taken over by hand. Pure.
#
# Only what means the same here is in it, and no secret: a line says which one goes where.

PROPOSAL = "openclaw-confidant.toml"
_HEAD = """\
# Proposed from the settings of OpenClaw: read it, and put what you want into confidant.toml.
# `confidant config check` tells every mistake. Nothing reads this file.
"""
_TOKENS = {
    "telegram": ("botToken", "TELEGRAM_BOT_TOKEN"),
    "discord": ("token", "DISCORD_BOT_TOKEN"),
    "nextcloud_talk": ("botSecret", "NEXTCLOUD_TALK_BOT_SECRET"),
}
_DM = ("pairing", "allowlist", "open", "disabled")
_GROUP = ("allowlist", "open", "disabled")
_SCOPES = ("main", "per-peer", "per-channel-peer", "per-account-channel-peer")
# What is read, by section.
_READ = {
    "agents": ("defaults", "list", "entries"),
    "commands": ("ownerAllowFrom",),
    "session": ("dmScope", "identityLinks", "reset"),
}

Value = str | int | bool | Sequence[str]


def proposed(settings: Mapping[str, object]) -> str:
    """The text of the proposal."""
    lines: list[str] = [_HEAD]
    for table, values, notes in (*_general(settings), *_channels(settings)):
        if values or notes:
            lines.append(f"[{table}]")
            lines += [f"# {_one_line(note)}" for note in notes]
            lines += [f"{toml_key(name)} = {toml_value(value)}" for name, value in values.items()]
            lines.append("")
    if others := sorted(_others(settings)):
        lines += ["# Settings of OpenClaw without a counterpart here:"]
        lines += [f"# {_one_line(other)[:100]}" for other in others]
    return well_formed("\n".join(lines))


def _others(settings: Mapping[str, object]) -> Iterator[str]:
    """The names of the settings that are not proposed, two levels deep, without what they say."""
    for section, value in settings.items():
        for name in mapping(value) or ("",):
            is_channel = section == "channels" and channel_of(name) in _TOKENS
            if name not in _READ.get(section, ()) and not is_channel:
                yield f"{section}.{name}".rstrip(".")


Table = tuple[str, Mapping[str, Value], Sequence[str]]


def _general(settings: Mapping[str, object]) -> Iterator[Table]:
    defaults = mapping(mapping(settings.get("agents")).get("defaults"))
    model = words(mapping(defaults.get("model")).get("primary")) or words(defaults.get("model"))
    zone = words(defaults.get("userTimezone"))
    about = [f"It answered with {model}: docs/models.md says how to name it here."] if model else []
    yield "agent", {"timezone": zone} if zone else {}, about
    session = mapping(settings.get("session"))
    values: dict[str, Value] = {}
    if (scope := words(session.get("dmScope"))) in _SCOPES:
        values["dm_scope"] = scope
    owners = _ids(mapping(settings.get("commands")).get("ownerAllowFrom"))
    named = [owner for owner in owners if ":" in owner and not owner.startswith(":")]
    if named:
        values["owner"] = [f"{channel_of(o.split(':', 1)[0])}:{o.split(':', 1)[1]}" for o in named]
    yield "session", values, [] if named else ['owner = ["telegram:42"] makes an account yours.']
    links = mapping(session.get("identityLinks"))
    joined = {name: [p for p in _ids(places) if ":" in p] for name, places in links.items()}
    yield "session.identity_links", {name: p for name, p in joined.items() if p}, []
    yield "session.reset", _reset(mapping(session.get("reset"))), []


def _reset(reset: Mapping[str, object]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    if (mode := words(reset.get("mode"))) in {"daily", "idle", "none"}:
        values["mode"] = mode
    hour, idle = reset.get("atHour"), reset.get("idleMinutes")
    if isinstance(hour, int) and 0 <= hour <= 23:
        values["at_hour"] = int(hour)
    if isinstance(idle, int) and 0 < idle < 1_000_000:
        values["idle_minutes"] = int(idle)
    return values


def _channels(settings: Mapping[str, object]) -> Iterator[Table]:
    for name, value in mapping(settings.get("channels")).items():
        channel, section = channel_of(name), mapping(value)
        if channel not in _TOKENS or not section:
            continue
        option, variable = _TOKENS[channel]
        is_set = bool(words(section.get(option)))
        notes = [f"Its {option} goes into .env as {variable}=…"] if is_set else []
        if section.get("accounts"):
            notes.append("It had more accounts: see accounts in config/confidant.toml.")
        yield f"channels.{channel}", _section(section), notes
        for id_, room in mapping(section.get("groups")).items():
            wanted = mapping(room).get("requireMention")
            values: dict[str, Value] = {}
            if isinstance(wanted, bool):
                values["require_mention"] = wanted
            yield f"channels.{channel}.groups.{toml_key(id_)}", values, ["A room it listens in."]


def _section(section: Mapping[str, object]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    if isinstance(enabled := section.get("enabled"), bool):
        values["enabled"] = enabled
    direct = mapping(section.get("dm"))
    policy = words(section.get("dmPolicy")) or words(direct.get("policy"))
    people = _ids(section.get("allowFrom")) or _ids(direct.get("allowFrom"))
    if policy in _DM and (policy != "open" or "*" in people):
        values["dm_policy"] = policy
    if people and (policy == "open" or "*" not in people):
        values["allow_from"] = people
    if (group := words(section.get("groupPolicy"))) in _GROUP:
        values["group_policy"] = group
    if rooms := _ids(section.get("groupAllowFrom")):
        values["group_allow_from"] = rooms
    return values


def _ids(value: object) -> list[str]:
    """Ids, as texts or numbers; what names a list of people elsewhere is none."""
    found = [str(each).strip() for each in items(value) if isinstance(each, (str, int))]
    return [each for each in found if each and not each.startswith("accessGroup:")]


def _one_line(text: str) -> str:
    return " ".join(text.split())
