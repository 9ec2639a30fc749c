"""`confidant sessions`: look at conversations and take them along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from bot.cli.arguments import ConfigOption
from bot.cli.common import load, local_time, reading
from bot.errors import ConfidantError
from bot.invocation import confidant
from bot.sessions import browsing, entries, imported, store
from bot.sessions.entries import Entry
from bot.sessions.store import Session
from bot.storage import files
from bot.unicode import harmless

INDEX_NAME = "sessions.json"


def show_all(config: ConfigOption = None) -> None:
    """Show every conversation, newest first; * marks those that go on."""
    loaded = load(config, quiet=True)
    found, pointers = reading(
        loaded.config, lambda tx: (store.all_sessions(tx), store.pointers(tx))
    )
    if not found:
        typer.echo("There is no conversation yet.")
    for session in found:
        mark = "*" if pointers.get(session.key) == session.id else " "
        typer.echo(
            f"{mark} {session.id}  {local_time(session.last_user_at)}  "
            f"{session.entry_count:>5} {'entry  ' if session.entry_count == 1 else 'entries'}  "
            f"{session.key}"
        )


def show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="As `sessions list` shows it.")],
    config: ConfigOption = None,
) -> None:
    """Show what was said in a conversation."""
    loaded = load(config, quiet=True)

    def work(tx: store.Transaction) -> tuple[Session, list[Entry], frozenset[str]] | None:
        session = store.get(tx, session_id)
        return None if session is None else (session, *browsing.whole(tx, session))

    found = reading(loaded.config, work)
    if found is None:
        raise ConfidantError(
            f"There is no session {session_id}: see `{confidant('sessions list')}`."
        )
    session, said, gone = found
    if dropped := (entries.number_of(said[0].id) - 1 if said else session.entry_count):
        typer.echo(
            f"({'1 entry' if dropped == 1 else f'{dropped} entries'} before this: the months they "
            "were of were dropped, see [storage] keep_months)"
        )
    for entry in said:
        words = "(forgotten)" if entry.id in gone else harmless(entry.text)
        if words:
            program = imported.name_of(session.channel) or "bot"
            who = "you" if entry.role == "user" else program
            typer.echo(f"{local_time(entry.at)}  {who}: {words}")


def export(
    folder: Annotated[Path, typer.Argument(help="Where to; made if it is not there.")],
    config: ConfigOption = None,
) -> None:
    """Write every transcript and an index of them, sessions.json, into a folder."""
    loaded = load(config, quiet=True)

    def work(tx: store.Transaction) -> int:
        found = store.all_sessions(tx)
        for session in found:
            lines = (store.header_of(session), *_lines(tx, session))
            _write(folder / f"{session.id}.jsonl", "".join(f"{line}\n" for line in lines).encode())
        index = _index(found, store.pointers(tx))
        _write(folder / INDEX_NAME, orjson.dumps(index, option=orjson.OPT_INDENT_2))
        return len(found)

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        count = reading(loaded.config, work)
    except OSError as exc:
        raise ConfidantError(f"{folder} cannot be written: {exc.strerror}.") from exc
    typer.echo(f"{count} conversations are in {folder}.")


def _lines(tx: store.Transaction, session: Session) -> Iterator[str]:
    lines, seq = browsing.everything(tx, session, 0)
    while lines:
        yield from lines
        lines, seq = browsing.everything(tx, session, seq)


def _index(found: list[Session], pointers: dict[str, str]) -> dict[str, Any]:
    """The current session of every key, in the shape other tools know."""
    by_id = {session.id: session for session in found}
    return {
        key: {
            "sessionId": id_,
            "updatedAt": by_id[id_].last_user_at,
            "chatType": by_id[id_].chat_type,
            "channel": by_id[id_].channel,
            "inputTokens": by_id[id_].input_tokens,
            "outputTokens": by_id[id_].output_tokens,
            "model": by_id[id_].model,
        }
        for key, id_ in pointers.items()
    }


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=files.opener) as stream:
        stream.write(data)
