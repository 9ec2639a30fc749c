"""Moving in from OpenClaw: what there is, what of it is new here, and bringing it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bot.errors import ImportRefused, ToolError
from bot.identity import PolicySnapshot, routing
from bot.importing import notes, storing, values
from bot.importing.notes import Brought, Notes
from bot.importing.openclaw import home, jobs, people, proposal, transcripts
from bot.importing.openclaw.home import Home
from bot.importing.openclaw.jobs import Job
from bot.importing.openclaw.people import Seat
from bot.importing.storing import Count, Owner
from bot.importing.values import Remembered, Skipped, Talk
from bot.memory import exchange, layout
from bot.memory.exchange import ExchangeError
from bot.memory.note_store import NoteStore
from bot.storage import Database, files

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
        text, before = notes.read(name, file)[0], exchange.text_of(store, name)
        if before == text:
            return None
        if home.is_untouched(values.pieces(text)):
            return Skipped(name, "it is as OpenClaw made it")
        if before is not None and before != layout.templates().get(name):
            return Skipped(name, "there is one here that somebody wrote; compare them")
        if not is_rehearsal:
            exchange.write(store, exchange.Change(name, before or "", text))
    except (ExchangeError, ToolError, OSError) as exc:
        return Skipped(name, str(exc))
    return Brought(name, values.count(text), is_new=before is None)


OWNERS = "you"  # as `Report.whose` has it, and
ROOMS = "rooms"


@dataclass(slots=True)
class Report:
    """What moving in comes to, or came to.

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
        for name, file in await asyncio.to_thread(lambda: [*notes.files(workspace, below=below)]):
            done: Brought | Skipped | None
            if name in notes.CHARACTER:
                done = _character(self.store, name, file, is_rehearsal=is_rehearsal)
            else:
                found = await asyncio.to_thread(notes.remembered, workspace, file)
                if isinstance(found, Remembered):
                    pieces = home.written(values.pieces(found.text))
                    done = await mine.bring(found.path, pieces, found.at)
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
        path, text = self.folder / proposal.NAME, proposal.proposed(self.home.settings)
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
