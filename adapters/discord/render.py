"""CommonMark → the Markdown Discord shows: pure. Most of it is the same; the rest is made readable.

Tables become aligned code blocks, deep headings bold, pictures links.
"""

from __future__ import annotations

import re

from bot.channel.kit.text import seen, table, units

LIMIT = 2000  # UTF-16 units of one message

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_RULE = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$")
_HEADING = re.compile(r"^ {0,3}#{4,6}\s+(\S.*)$")
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\(([^)\s]+)(?:\s[^)\n]*)?\)")
_CODE = re.compile(r"(`+[^`\n]+`+)")


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
            made += _table([lines[at], *lines[at + 2 : end]])
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


def _table(rows: list[str]) -> list[str]:
    return ["```", *table([[_bare(cell) for cell in _cells(row)] for row in rows]), "```"]


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _bare(cell: str) -> str:
    """A cell's words: marks show as they are in code, and a fence would end the block."""
    return re.sub(r"\*\*|__|`", "", cell)
