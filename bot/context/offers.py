"""Which sentence of a message may be offered to be kept, by its form alone. Pure.

Without a model nobody can tell what matters. A sentence with a name, a number or a date is offered
to the person, who can.
"""

from __future__ import annotations

import re
from typing import Final

from bot.context import sentences
from bot.context.secrets import holds_secret
from bot.messages import CLEAN, Message, Text

LONGEST: Final = 200  # characters of a sentence that is offered
MESSAGE: Final = 600  # characters; a longer message was pasted, as were many lines
LINES: Final = 3

# A capital inside a sentence is how English marks a name; 叫 goes before one in Chinese.
_EXACT = re.compile(
    r"\d|(?<=[a-zß-ÿ,;] )(?!I\b)[A-ZÀ-Þ][\w’'-]*\w|叫[\u4e00-\u9fff]{2,4}"
    r"|[零一二三四五六七八九十两百千万]+[个月号日点岁年块元]|(?:周|星期|礼拜)[一二三四五六日天]"
)
_QUOTED = re.compile(r"[\"“”「」『』`>|{}<]")


def is_exact(sentence: str) -> bool:
    """True when a sentence has a name, a number or a date."""
    return _EXACT.search(sentence) is not None


def sentence_of(message: Message) -> str:
    """The first sentence of a person's own words that may be offered; empty without one."""
    own = "".join(
        block.text
        for block in message.blocks
        if isinstance(block, Text) and not block.note and block.origin in CLEAN
    ).strip()
    if len(own) > MESSAGE or own.count("\n") >= LINES or sentences.is_unwanted(own):
        return ""
    return next(filter(_may_be_offered, sentences.split(own)), "")


def _may_be_offered(sentence: str) -> bool:
    return (
        len(sentence) <= LONGEST
        and is_exact(sentence)
        and not sentences.is_question(sentence)
        and _QUOTED.search(sentence) is None
        and not holds_secret(sentence)
    )
