"""The program that opens files, in a process of its own: `python program.py MEGABYTES SECONDS`.

Whatever a stranger sends is opened here, without the bot's secrets, with bounded memory and time,
so that the worst a file can do is to end this process. Libraries for documents are loaded with the
first one: with pictures alone it starts in a moment.
"""

from __future__ import annotations

from bot.files import documents, pictures, sandbox
from bot.files.sandbox import Head, Unreadable


def answer(head: Head, data: bytes) -> tuple[Head, bytes]:
    """The answer for a file: what was asked for, or the reason why not."""
    try:
        if head["task"] == "picture":
            return {}, pictures.jpeg(data)
        extract = documents.text_of(data, head["content_type"], head["name"], head.get("url", ""))
    except Unreadable as error:
        return {"reason": error.reason}, b""
    except MemoryError:
        return {"reason": "memory"}, b""
    except Exception:  # noqa: BLE001 - a reader may raise anything for a file made to harm
        return {"reason": "damaged"}, b""
    about = {name: getattr(extract, name) for name in ("unit", "read", "of", "is_cut")}
    return about, extract.text.encode("utf-8", "replace")


if __name__ == "__main__":
    sandbox.run(answer, pictures.prepare)
