"""How somebody feels at the moment, which is over tomorrow. Pure."""

from __future__ import annotations

import re

from bot.clock import MONTH_NAME

LONG_BESIDE_MOOD = 14  # characters of a Chinese sentence beside its mood

_LASTING = re.compile(
    r"\b(?:since|for (?:years|months|weeks|ages)|always|every|often|usually|diagnos\w+"
    r"|chronic\w*|each|never"
    r"|whenever|by nature|all my life|years?)\b|一直|总是|每[天周月年晚早次]|经常|长期|多年"
    r"|从小|确诊|老是|习惯|容易|常常",
    re.IGNORECASE,
)
_FEELING = (
    r"(?:tired|exhausted|sleepy|hungry|starving|thirsty|cold|freezing|hot|bored|sad|down|happy"
    r"|unhappy|excited"
    r"|nervous|angry|mad|annoyed|stressed|proud|glad|over the moon|lonely|sick|fed up"
    r"|in a hurry|in a (?:good|bad"
    r"|great|terrible) mood|worried|upset|grumpy|anxious|lazy|thankful|grateful|satisfied"
    r"|friendly|curious|useless"
    r"|a zombie|a mess|a wreck|an idiot|like an?|lying down|good|fine|ok(?:ay)?|great|well"
    r"|busy|thrilled|relieved|confused|awake|kidding|joking|done|ready"
    r"|back|here|sorry|sure|not sure|afraid|on it|dead|wet|late)"
)
_MOOD = re.compile(
    rf"\b(?:i['’]?m|i am|i was|we['’]?re|we are|feel(?:s|ing)?|is|seems?|was)\s+(?:(?:so|very"
    rf"|really|a bit|a little|quite"
    rf"|super|too|just|also|still|pretty|rather|totally|all|feeling|like)\s+)*+{_FEELING}\b"
    r"|\bha(?:ve|s) (?:a |an )?(?:headache|hangover|cold right now|lazy)\b|\b(?:eyes?|head"
    r"|feet|back)\b[^.]{0,20}\b(?:hurts?|aches?|(?:is|are) killing)\b"
    r"|\bannoys?\b|\bcould (?:sleep|cry|scream)\b|\bhates? this\b|\bwhat a (?:week|day|mess)\b"
    r"|\b(?:nice|lovely) weather\b",
    re.IGNORECASE,
)
_MOOD_ZH = re.compile(
    "(?:好|很|太|真|有点儿?|特别|非常|超级?|一般|挺|不)(?:累|困|饿|渴|烦|气|生气|开心|高兴"
    "|难过|伤心|无聊|紧张|失落|郁闷"
    "|焦虑|激动|兴奋|着急|不爽|羡慕|害怕|担心|忙|冷|热|满意|怕|好|没?事)(?:死了|极了|了|啊|呀)?"
    "|(?:累|困|饿|渴|烦|气|笑|急|热|冷|忙)(?:死|坏)(?:了|我)|心情|饿了|无聊|懒得|想哭|诸事不顺"
    "|什么都不想|没事$|好烦|救命"
    "|(?:腿|脚|手|头|肚子|胃|眼睛|嗓子|腰|背)(?:都|有点儿?|好|很|也)*(?:软|疼|痛|酸|晕|胀|困)"
    "|昨晚|外面(?:好像)?(?:下|在)|天气|需要帮助|想吃|躺一会"
)
_WEEKDAY_OR_MONTH = re.compile(
    rf"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|{MONTH_NAME})\b|\d\s*[月号日]"
    rf"|周[一二三四五六日天]",
    re.IGNORECASE,
)


def is_mood(sentence: str) -> bool:
    """True when a sentence tells how somebody feels at the moment, or what the weather is like."""
    if _LASTING.search(sentence) or _WEEKDAY_OR_MONTH.search(sentence):
        return False
    if _MOOD.search(sentence):
        return True
    found = _MOOD_ZH.search(sentence)
    # Of a longer Chinese sentence its mood is but one part.
    return found is not None and len(sentence) - len(found.group()) < LONG_BESIDE_MOOD
