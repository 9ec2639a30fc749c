"""The commands that stand in groups, such as `confidant pairing list`.

Each imports what it needs when it is called, so that help is there at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.arguments import (
    ChannelArgument,
    ConfigOption,
    DryRunOption,
    ExportFile,
    NotesFolder,
    PersonOption,
    QuietOption,
    SenderArgument,
    Words,
    YesOption,
)

MAX_PASSAGES = 50  # of one search


def _group(about: str) -> typer.Typer:
    return typer.Typer(help=about, no_args_is_help=True)


of_pairing = _group("Let people in, and out again.")
of_sessions = _group("Look at conversations and take them along.")
of_memory = _group("Look into the owner's memory, and mend its index.")
of_config = _group("Check, explain and show the configuration.")
of_import = _group("Move in: bring what was said to other programs, and their notes.")


@of_pairing.command("list")
def pairing_list(config: ConfigOption = None) -> None:
    """Show who asked, the newest first, and who was let in."""
    from bot.cli import pairing

    pairing.show(config)


@of_pairing.command()
def approve(
    channel: ChannelArgument,
    code: Annotated[str, typer.Argument(metavar="CODE", help="What they were given.")],
    me: Annotated[
        bool | None,
        typer.Option(
            "--me/--not-me",
            help="Whether it is another account of yours, with your memory; asked in a terminal.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Let in whoever was given this code; they are told."""
    from bot.cli import pairing

    pairing.approve(channel, code, config, me=me)


@of_pairing.command()
def revoke(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Take a person's permission away again; SENDER is their id."""
    from bot.cli import pairing

    pairing.revoke(channel, sender, config)


@of_pairing.command()
def block(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Give somebody no answer and no code any more; SENDER is their id."""
    from bot.cli import pairing

    pairing.block(channel, sender, config)


@of_pairing.command()
def unblock(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Let somebody who was blocked ask again; SENDER is their id."""
    from bot.cli import pairing

    pairing.unblock(channel, sender, config)


@of_sessions.command("list")
def sessions_list(config: ConfigOption = None) -> None:
    """Show every conversation, newest first; * marks those that go on."""
    from bot.cli import sessions

    sessions.show_all(config)


@of_sessions.command("show")
def sessions_show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="As `sessions list` shows it.")],
    config: ConfigOption = None,
) -> None:
    """Show what was said in a conversation."""
    from bot.cli import sessions

    sessions.show(session_id, config)


@of_sessions.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Where to; made if it is not there.")],
    config: ConfigOption = None,
) -> None:
    """Write every transcript and an index of them, sessions.json, into a folder."""
    from bot.cli import sessions

    sessions.export(folder, config)


@of_import.command("chatgpt")
def import_chatgpt(
    file: ExportFile,
    *,
    person: PersonOption = "owner",
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the conversations of a data export of ChatGPT; what is there already stays."""
    from bot.cli import importing

    importing.chats("chatgpt", file, person, config, yes=yes, dry_run=dry_run, quiet=quiet)


@of_import.command("openclaw")
def import_openclaw(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Its folder, such as ~/.openclaw, or a workspace.")
    ],
    *,
    mine: Annotated[
        bool, typer.Option("--mine", help="What nothing says whose it is, is yours.")
    ] = False,
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring notes, conversations, people and settings of an OpenClaw, which stays as it is."""
    from bot.cli import openclaw

    openclaw.move(folder, config, mine=mine, yes=yes, dry_run=dry_run, quiet=quiet)


@of_import.command("claude")
def import_claude(
    file: ExportFile,
    *,
    person: PersonOption = "owner",
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the conversations of a data export of Claude; what is there already stays."""
    from bot.cli import importing

    importing.chats("claude", file, person, config, yes=yes, dry_run=dry_run, quiet=quiet)


@of_memory.command()
def status(config: ConfigOption = None) -> None:
    """Show what is in the index, how it searches, and what is in trouble."""
    from bot.cli import memory

    memory.status(config)


@of_memory.command()
def search(
    words: Words,
    config: ConfigOption = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_PASSAGES, help="Most passages.")] = (
        None
    ),
) -> None:
    """Find what the owner may see, by words and by meaning."""
    from bot.cli import memory

    memory.search(" ".join(words), limit, config)


@of_memory.command()
def index(*, config: ConfigOption = None, quiet: QuietOption = False) -> None:
    """Bring the index in step with the files now."""
    from bot.cli import memory

    memory.index(config, quiet=quiet)


@of_memory.command()
def verify(config: ConfigOption = None) -> None:
    """Check vectors, embedder, index and files; exit status 1 when something is in trouble."""
    from bot.cli import memory

    memory.verify(config)


@of_memory.command()
def forget(words: Words, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Remove what holds these words from files, index, cache and the search of transcripts."""
    from bot.cli import memory

    memory.forget(" ".join(words).strip(), config, yes=yes)


@of_memory.command()
def pull(folder: NotesFolder, config: ConfigOption = None) -> None:
    """Copy your notes, the bot's own files and what is shared into a new folder."""
    from bot.cli import notes

    notes.pull(folder, config)


@of_memory.command()
def push(folder: NotesFolder, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Write back what was edited in a folder that pull made; exit status 1 if not all of it."""
    from bot.cli import notes

    notes.push(folder, config, yes=yes)


@of_memory.command()
def edit(
    path: Annotated[str, typer.Argument(help="The note, such as MEMORY.md or memory/trip.md.")],
    config: ConfigOption = None,
) -> None:
    """Edit a note in $VISUAL or $EDITOR."""
    from bot.cli import notes

    notes.edit(path, config)


@of_config.command("check")
def config_check(config: ConfigOption = None) -> None:
    """Read the configuration and say what is wrong with it."""
    from bot.cli import options

    options.check(config)


@of_config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration file."""
    from bot.cli import options

    options.schema()


@of_config.command("show")
def config_show(config: ConfigOption = None) -> None:
    """Print every option as it is in force, where it comes from, and no secret."""
    from bot.cli import options

    options.show(config)
