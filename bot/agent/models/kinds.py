"""What a question asks for, by its words, and what a line that answers it has. Pure."""

from __future__ import annotations

import re

_NUMBER = (
    r"\d|[零一二三四五六七八九十百千万两]|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve|fifteen|twenty|thirty|forty|fifty|sixty|hundred|thousand|half|dozen|twins?|every|once"
    r"|twice|never|each|first|second|third)\b"
)
_TIME = (
    rf"{_NUMBER}|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may"
    r"|june|july|august|september|october|november|december|spring|summer|autumn|winter|easter"
    r"|christmas|birthday|morning|evening|night|noon|year|month|week|day|until|tomorrow|holiday"
    r"|since|after|before|when|ago|last|next)\w*|[年月日周天早晚午夜春夏秋冬节号点时前后]|星期|礼拜"
    "|元旦|清明"
)
_PERSON = (
    r"\b(?:grand)?(?:mother|father)\b|\b(?:granny|grandma|grandpa|mum|dad|brother|sister|aunt"
    r"|uncle|cousin|friend|boss|colleague|neighbou?r|wife|husband|son|daughter|parents|godchild"
    r"|landlady|landlord|teacher|flatmate|doctor|dentist|vet|adviser|judge|team)\b"
    "|[爸妈哥姐弟妹爷奶公婆叔伯舅姨姑嫂]|女儿|儿子|孩子|闺蜜|室友|领导|同事|邻居|房东|经理|老师|医生|朋友"
    "|老板|妻子|丈夫"
)
_NAMED = r"(?<=[a-z,.] )[A-ZÀ-Þ][\w-]+|\bwe\b|[师医姓叫老小阿]"
_PLACE = (
    r"\b(?:in|at|under|behind|on|from|to|near|next|above|below|inside|by|with|between)\b"
    "|[在里下上到去从住处边]"
)
_ASKS_TIME = (
    r"\b(?:(?:since |until )?when|what (?:time|day|date|year)|how (?:old|long|often|soon)"
    r"|(?:which|what|how many) (?:days?|evenings?|years?|months?|dates?|weekdays?|weeks?|times?))\b"
    "|什么时候|何时|几[点天号年月日时]|哪[些个一几]?[天年月日]|多久|(?:星期|周)几|多大|最晚|日期"
)
_ASKS_NUMBER = (
    r"\b(?:how (?:many|much|big|tall|far|large|late)|what (?:number|size|code|pin)"
    r"|which (?:number|size|code)|number of|phone)\b"
    "|多少|几|多[高长远重]|号码|密码|电话|尺码"
)
_ASKS_PERSON = r"\b(?:who|whom|whose)\b|谁|叫什么|哪位|哪个人|什么人|姓什么"
_ASKS_PLACE = (
    r"\b(?:where|(?:in )?(?:which|what) (?:town|city|country|place|room))\b"
    "|哪里|哪儿|什么地方|何处|哪个(?:城市|地方)"
)
_KINDS = tuple(  # the first that fits counts
    (re.compile(asked, re.IGNORECASE), re.compile(has))
    for asked, has in (
        (_ASKS_TIME, f"(?i:{_TIME})"),
        (_ASKS_NUMBER, f"(?i:{_NUMBER})"),
        (_ASKS_PERSON, f"(?i:{_PERSON})|{_NAMED}"),
        (_ASKS_PLACE, f"(?i:{_PLACE})"),
    )
)
_PEOPLE = re.compile(_PERSON, re.IGNORECASE)
_NAMES = re.compile(r"(?<=[a-z,] )[A-ZÀ-Þ][\w-]+")  # a sentence begins with a capital anyway


def asked_for(question: str) -> re.Pattern[str] | None:
    """What a line has that answers a question: a time, a number, somebody, a place; else None."""
    return next((has for asked, has in _KINDS if asked.search(question)), None)


def people(text: str) -> frozenset[str]:
    """Who is spoken of, by what they are to somebody: a mother, a neighbour."""
    return frozenset(each.lower() for each in _PEOPLE.findall(text))


def names(text: str) -> frozenset[str]:
    """The names in a text, as far as capitals tell."""
    return frozenset(each.lower() for each in _NAMES.findall(text))
