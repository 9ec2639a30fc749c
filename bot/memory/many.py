"""Whether a question asks for many things, by how it is put, in English and Chinese. Pure."""

from __future__ import annotations

from bot.sessions.time_words import compiled

MAX_TEXT = 400  # characters of a question that are read

_PLURAL = r"(?:[^\s'’]+ ){0,3}\w+(?<![suio])s"
_LIST = (
    r"\b(?:what|which|whose) (?:(?:kinds|types|sorts) of\b|"
    rf"{_PLURAL} (?:has|have|had|do|does|did|are|were|is|was|can|could|will|would|should)\b)|"
    r"\b(?:list|name (?:all|the))\b|哪些|哪几|列出|列举|有谁"
)
_MANY = (
    rf"{_LIST}|"
    r"\b(?:what|which|whose) (?:(?:are|were)\b|of\b)|"
    r"\b(?:what|where|who|whom|which \w+|what \w+) (?:has|have)\b|"
    r"\bwho (?:of|among|else|all|are|were)\b|\bhow (?:many|often)\b|"
    r"\bwhat (?:do|does) .{1,60} (?:like|love|enjoy|do|collect|own|have|play|share)\b|"
    r"\b(?:both|in common|alike|all|every|everything|everyone|each|various|"
    r"different)\b|"
    r"几[个個次位种種条件]|多少|都|所有|一共|总共|總共|谁.{0,6}[会有]|共同|"
    r"一样|一樣|相同|各自|分别|分別"
)


def asks_for_many(question: str) -> bool:
    """True for "which countries has Ada been to", "what have they in common" and 我去过哪些城市.

    A wrong answer costs little: how its results are found and ordered changes, not what is one.
    """
    return compiled(_MANY).search(" ".join(question[:MAX_TEXT].split())) is not None
