"""CommonMark → the Markdown that Discord shows, and the messages a text becomes: pure.

Most of it is the same; the rest is made readable: tables become aligned code blocks, deep headings
bold, pictures links.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import blake2b

import structlog

from adapters.discord.interactions import pressable
from bot.channel import Attachment, Button, Outbound, Piece
from bot.channel.kit.json_access import Json, is_blank
from bot.channel.kit.text import first_units, numbered, seen, split, table, units

LIMIT = 2000  # UTF-16 units of one message
SHOWN = 1900  # UTF-16 units that are shown before the reply is finished
# Stands at the end of a reply that is being written. A message of the bot's that still ends so
# after a restart was never finished, and is taken away.
MARK = " ▍"
MAX_FILES = 10  # of one message
MAX_FILE = 10_000_000  # bytes; what a server without boosts takes, for one message together
MAX_ROW, MAX_ROWS = 5, 5  # buttons side by side, and rows of them
MAX_BUTTON_LABEL = 80

_log = structlog.get_logger()

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_RULE = re.compile(r"^\s*+\|?\s*+:?-++:?\s*+(\|\s*+:?-++:?\s*+)++\|?\s*+$")
_HEADING = re.compile(r"^ {0,3}#{4,6}\s+(\S.*)$")
_PICTURE = re.compile(r"!\[([^\[\]\n]*+)\]\(([^)\s]++)(?:\s[^)\n]*+)?\)")
_CODE = re.compile(r"((?<!`)`++[^`\n]++`++)")


def rendered(text: str) -> str:
    """The text for Discord; as it was when it would be too long otherwise."""
    text = seen(text)
    lines = text.split("\n")
    made: list[str] = []
    fence = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1][:3]
        if fence or mark:
            made.append(line)
        elif "|" in line and at + 1 < len(lines) and _RULE.match(lines[at + 1]):
            end = at + 2
            while end < len(lines) and "|" in lines[end] and not _FENCE.match(lines[end]):
                end += 1
            rows = [_cells(row) for row in (lines[at], *lines[at + 2 : end])]
            made += ["```", *table(rows), "```"]
            at = end
            continue
        else:
            made.append(_line(line))
        at += 1
    whole = "\n".join(made)
    return whole if units(whole) <= LIMIT else text


def _line(line: str) -> str:
    heading = _HEADING.match(line)
    words = heading[1].rstrip().rstrip("#").rstrip() if heading else ""
    if words:
        return f"**{words.replace('**', '')}**"
    if "![" not in line:
        return line
    # What stands in code stays as it is: every second part.
    parts = _CODE.split(line)
    parts[::2] = [_PICTURE.sub(r"[\1](\2)", part) for part in parts[::2]]
    return "".join(parts)


def _cells(row: str) -> list[str]:
    """The words of a row: marks show as they are in code, and a fence would end the block."""
    cells = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [re.sub(r"\*\*|__|`", "", cell.strip().replace("\\|", "|")) for cell in cells]


def messages(outbound: Outbound) -> list[Piece]:
    """The messages a text and its files become; the first files come with the words.

    Raises:
        SendRefused: there is nothing to show.
    """
    groups: list[list[Attachment]] = [[]]
    size = 0
    for file in outbound.attachments:
        if not 0 < len(file.data) <= MAX_FILE:
            _log.warning("discord.file.left_out", mime=file.mime, size=len(file.data))
            continue
        if len(groups[-1]) >= MAX_FILES or size + len(file.data) > MAX_FILE:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += len(file.data)
    chunks = split(outbound.text, LIMIT, "utf16")
    words = ["" if is_blank(chunk) else rendered(chunk) for chunk in chunks] or [""]
    made = [Piece(outbound, each) for each in words]
    made[-1] = replace(made[-1], attachments=tuple(groups[0]))
    made += [Piece(outbound, "", attachments=tuple(group)) for group in groups[1:]]
    return numbered(each for each in made if each.text or each.attachments)


def rows(buttons: tuple[Button, ...]) -> list[Json]:
    """The buttons as Discord draws them, five side by side."""
    made: list[Json] = []
    seen: set[str] = set()
    for button in buttons:
        shown = button.label.strip()[:MAX_BUTTON_LABEL]
        if not shown or not pressable(button.command) or button.command in seen:
            _log.warning("discord.button.left_out", command=button.command.partition(" ")[0][:32])
            continue
        seen.add(button.command)
        made.append({"type": 2, "style": 2, "label": shown, "custom_id": button.command})
    cut = [made[at : at + MAX_ROW] for at in range(0, len(made), MAX_ROW)][:MAX_ROWS]
    return [{"type": 1, "components": row} for row in cut]


def shortened(text: str) -> str:
    """The text so far as it may be shown: not too long, its code block closed, marked."""
    if units(text) > SHOWN:
        text = first_units(text, SHOWN).rstrip() + " …"
    fences = sum(line.lstrip().startswith("```") for line in text.split("\n"))
    return f"{text}\n```\n{MARK.strip()}" if fences % 2 else text.rstrip() + MARK


def nonce(name: str) -> str:
    """A name as Discord takes it: at most 25 characters; the same name gives the same message."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def reference(message_id: str) -> Json:
    """The reference that makes a message a reply; one to a message that is gone does no harm."""
    if not message_id:
        return {}
    return {"message_reference": {"message_id": message_id, "fail_if_not_exists": False}}
