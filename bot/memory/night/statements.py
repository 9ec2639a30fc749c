"""What an entry states, as far as plain rules can tell, in English and Chinese. Pure.

Nothing is understood here. Entries that say the same, to the word but for case, punctuation,
articles and who speaks, have the same `core`; a few kinds of facts that one has only one of (where
somebody lives or works, how old they are, a number to call) have a `slot` and a `value`; and one
that denies another has its core. What does not fit is left alone: to miss a repetition costs a
line, to see one where none is costs a fact.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

MOST: Final = 300  # characters of an entry that is looked at

_CJK: Final = re.compile(r"[\u3400-\u9fff]")
_TOKEN: Final = re.compile(r"\S+")
_AROUND: Final = ".,;:!?\"'“”‘’()[]*_`…"
_LEADING: Final = re.compile(
    r"^(?:(?:please )?(?:remember|note|keep in mind)(?: that)?:? |fact: )", re.IGNORECASE
)
_ARTICLES: Final = frozenset({"a", "an", "the"})
_SHORT: Final = {"i'm": "i am", "i've": "i have", "don't": "do not", "doesn't": "do not"}
_SHORT_MORE: Final = {"isn't": "is not", "aren't": "is not", "can't": "can not"}
_SELF: Final = re.compile(r"^(?:i|user|owner|person) (?=\S)")
_MINE: Final = re.compile(r"^(?:my|our|user's|owner's|person's) (?=\S)")
_VERB_FORMS: Final = {"am": "is", "are": "is", "has": "have", "does": "do"}

# What happened once, or is to happen, is said again without being the same.
_PASSING: Final = frozenset(
    """today tonight yesterday tomorrow now morning afternoon evening noon week weekend month
    just currently later soon again ago next last monday tuesday wednesday thursday friday
    saturday sunday went had ate took ran slept saw met bought got did made said told
    came left felt was were paid spent drank wrote sent gave found lost won sold drove flew swam
    walked will would should might may wants""".split()  # noqa: SIM905
)
_PASSING_CJK: Final = re.compile(
    r"了|过(?!敏)|今[天晚早年]|昨|明[天晚早年]|刚[才刚]?|上周|下周|这周|本周|周[一二三四五六日末]|早上|晚上|下午|中午|将|打算|准备|提醒"
)
_STATES: Final = frozenset(
    "is have can must like love prefer need hate know speak live work".split()  # noqa: SIM905
)
_STATES_CJK: Final = re.compile(r"[是有在叫住爱会属]|喜欢|讨厌|过敏|不吃|不喝|不能|工作|：|:")
_ENDINGS: Final = re.compile(r"(?:ing|ed|es|s|e)$")


@dataclass(frozen=True, slots=True)
class Statement:
    """What an entry says.

    `core` is the same for what says the same, and empty where nothing can be compared. `is_lasting`
    is true for what stays true for a while, `passes` for what happens at a time. `denies` is the
    core of what it says is not so.
    """

    core: str = ""
    is_lasting: bool = False
    passes: bool = False
    slot: str = ""
    value: str = ""
    denies: str = ""


def read(words: str, context: str = "") -> Statement:
    """What an entry's words state; `context` is what they stand below, which may be their subject.

    One that names its subject itself, as "I" or "my" do, needs no context.
    """
    flat = " ".join(unicodedata.normalize("NFKC", words).split())
    if not flat or len(flat) > MOST or flat.endswith("?"):
        return Statement()
    return _read_cjk(flat, context) if _CJK.search(flat) else _read(flat, context)


def contradict(one: Statement, other: Statement) -> bool:
    """True for two statements that cannot both be so at the same time."""
    if one.slot and one.slot == other.slot:
        return not _is_alike(one.value, other.value)
    return bool(
        (one.denies and one.denies == other.core and not other.denies)
        or (other.denies and other.denies == one.core and not one.denies)
    )


def _is_alike(one: str, other: str) -> bool:
    """True for two values of which one may be the other: more exactly said, or in Chinese."""
    digits = [re.sub(r"\D", "", each) for each in (one, other)]
    if all(len(each) >= 5 for each in digits):
        return digits[0][-7:] == digits[1][-7:]
    is_of_both = bool(_CJK.search(one)) != bool(_CJK.search(other))
    return is_of_both or one in other or other in one


# --- English -------------------------------------------------------------------------------------

_VALUE: Final = r"(?P<value>[^,;]{1,60}?)"
_SINCE: Final = (
    r"(?: since \S+(?: \d{4})?| (?:last|this) (?:week|month|year|spring|summer|autumn|fall|winter)"
    r"| yesterday| today| now| recently)?"
)
_HOME: Final = re.compile(
    r"^(?:(?P<who>.{1,40}?) )?(?:have )?(?:just |recently |now )?"
    rf"(?:lives?|moved|relocated|resides?)(?: now)? (?:in|to) {_VALUE}{_SINCE}$"
)
_WORK: Final = re.compile(
    r"^(?:(?P<who>.{1,40}?) )?(?:have )?(?:just |recently |now )?"
    rf"(?:works?|started|started working|working)(?: now)? (?:at|for) {_VALUE}{_SINCE}$"
)
_ROLE: Final = re.compile(
    rf"^(?:(?P<who>.{{1,40}}?) )?(?:now )?works?(?: now)? as {_VALUE}{_SINCE}$"
)
_AGE: Final = re.compile(
    r"^(?:(?P<who>.{1,40}?) )?(?:is|turned|turns|just turned)(?: now)? (?P<value>\d{1,3})"
    r"(?: years? old)?(?: now| today| yesterday)?$"
)
_NOUNS: Final = (
    r"(?:(?:work|home|office|private) )?(?:phone|telephone|mobile|cell)(?: phone)?(?: number)?|"
    r"(?:(?:work|home|private) )?(?:e-?mail|email address|e-mail address|address)|"
    r"boss|manager|dentist|doctor|gp|landlord|landlady|employer|salary|rent|shoe size|"
    r"(?:door|entry) code|postcode|zip code|licen[cs]e plate|favou?rite [a-z]+"
)
_HELD: Final = re.compile(
    rf"^(?:(?P<who>[^ ]+(?: [^ ]+)?)'s )?(?:new )?(?P<noun>{_NOUNS})(?: is)?(?: now)?:? {_VALUE}$"
)
_NAMED: Final = frozenset(
    "home work boss manager dentist doctor gp landlord landlady employer".split()  # noqa: SIM905
)  # whose value is a name
_KIN: Final = frozenset(
    "son daughter sister brother mother father wife husband niece nephew dog cat".split()  # noqa: SIM905
)
_NOT_WHO: Final = frozenset(
    """want wants to will would might may could should used if not never no and or do going plan
    plans hope hopes like who that when where before once did both also think thinks said says
    dream dreams ever still always sometimes often until after while because but as""".split()  # noqa: SIM905
)
_NOT_VALUE: Final = _NOT_WHO - {"to"} | frozenset({"for", "with", "from", "in", "at", "on"})
_NO_LONGER: Final = re.compile(r"^(?P<first>is |have |can )?no longer (?P<rest>.+)$")
_NOT_ANY_MORE: Final = re.compile(
    r"^(?:(?P<first>is |have |can )|do )not (?P<rest>.+?)(?P<more> any ?more| any longer)?$"
)
_STOPPED: Final = re.compile(r"^(?:have )?(?:stopped|quit|gave up|given up) (?P<rest>\w+ing\b.*)$")


def _read(flat: str, context: str) -> Statement:
    said = " ".join(_tokens(_LEADING.sub("", flat)))
    is_self, is_mine = bool(_SELF.match(said)), bool(_MINE.match(said))
    if not said or " " not in said:
        return Statement()
    where = "" if is_self or is_mine else context
    said = _SELF.sub("", said)
    said = _MINE.sub("my ", said)
    denied = _denied(said)
    core = _core(said)
    words = said.split()
    passes = not _PASSING.isdisjoint(words) or any(map(_is_past, words[:2]))
    states = is_self or is_mine or _is_state(words)
    slot, value = _slot(said, flat)
    return Statement(
        core=f"{where}|{_core(denied) if denied else core}",
        is_lasting=states and not passes and not denied,
        passes=passes,
        slot=f"{where}|{slot}" if slot else "",
        value=value,
        denies=f"{where}|{_core(denied)}" if denied else "",
    )


def _is_past(word: str) -> bool:
    return word.endswith("ed") and len(word) > 4


def _tokens(flat: str) -> list[str]:
    found: list[str] = []
    for match in _TOKEN.finditer(flat.casefold().replace("’", "'")):
        token = match[0]
        ends = ":" if token.endswith(":") and len(token) > 1 else ""
        bare = token.strip(_AROUND) + ends
        bare = _SHORT.get(bare) or _SHORT_MORE.get(bare) or _VERB_FORMS.get(bare, bare)
        if bare.strip(":") and bare not in _ARTICLES:
            found += bare.split()
            if token.endswith((",", ";")):
                found[-1] += ","
    return ["is" if word == "am" else word for word in found]


def _core(said: str) -> str:
    """The words to be compared, the first, which is mostly a verb, without its ending."""
    first, _, rest = said.partition(" ")
    if first not in {"is", "my"} and first.isalpha():
        stem = _ENDINGS.sub("", first)
        first = stem[:-1] if len(stem) > 3 and stem[-1:] == stem[-2:-1] and first != stem else stem
    return f"{first} {rest}".replace(",", "").replace(":", "").strip()


def _is_state(words: list[str]) -> bool:
    """True when something is, has or likes something, or stands behind a colon."""
    first = {*words[:4], words[0].removesuffix("s")}
    return not _STATES.isdisjoint(first) or any(":" in word for word in words[:3])


def _slot(said: str, flat: str) -> tuple[str, str]:
    for name, pattern in (("home", _HOME), ("work", _WORK), ("role", _ROLE), ("age", _AGE)):
        found = pattern.match(said)
        if found is None:
            continue
        who, value = found["who"] or "", found["value"].strip()
        is_age = name != "age" or _is_age(said, who)
        if is_age and _is_who(who) and _is_value(name, value, flat):
            return f"{who}|{name}", value
    held = _HELD.match(said.removeprefix("my "))
    if held is None:
        return "", ""
    who, noun, value = held["who"] or "", _noun(held["noun"]), held["value"].strip()
    if not (_is_who(who) and _is_value(noun, value, flat)):
        return "", ""
    return f"{who}|{noun}", value


def _noun(noun: str) -> str:
    plain = noun.replace("telephone", "phone").replace("cell", "mobile").replace("e-mail", "email")
    plain = plain.removesuffix(" number").replace("mobile phone", "mobile")
    return plain.replace("email address", "email").replace("favourite", "favorite")


def _is_who(who: str) -> bool:
    words = who.split()
    return len(words) <= 3 and not _NOT_WHO.intersection(words) and "," not in who


def _is_age(said: str, who: str) -> bool:
    words = who.split()
    return "year" in said or "turn" in said or not words or words[-1] in _KIN


def _is_value(name: str, value: str, flat: str) -> bool:
    words = value.split()
    if not 0 < len(words) <= 5 or _NOT_VALUE.intersection(words):
        return False
    if name in _NAMED:
        return _is_name(words[0], flat)
    if name == "email":
        return "@" in value
    return name == "role" or name.startswith("favorite") or any(map(str.isdigit, value))


def _is_name(word: str, flat: str) -> bool:
    """True when a word is written like a name in the entry as it stands."""
    spelled = (each.strip(_AROUND) for each in flat.split())
    return any(each.casefold() == word and each[:1].isupper() for each in spelled)


def _denied(said: str) -> str:
    """What a statement says is not so; empty when it says that of nothing."""
    stopped = _STOPPED.match(said)
    if stopped is not None:
        return stopped["rest"]
    found = _NO_LONGER.match(said) or _NOT_ANY_MORE.match(said)
    return f"{found['first'] or ''}{found['rest']}" if found is not None else ""


# --- Chinese -------------------------------------------------------------------------------------

_KIN_CJK: Final = (
    "妹妹|姐姐|哥哥|弟弟|妈妈|爸爸|母亲|父亲|女儿|儿子|老婆|妻子|老公|丈夫|奶奶|爷爷|外婆|外公|"
    "朋友|男朋友|女朋友"
)
_SELF_CJK: Final = re.compile(rf"^(?:我们?|用户|主人|本人)(?!的?(?:{_KIN_CJK}))")
_WHO_CJK: Final = rf"(?P<who>(?:我的?)?(?:{_KIN_CJK})|[A-Za-z]{{2,20}}|小[\u4e00-\u9fff])?"
_LATELY: Final = r"(?:现在|目前|已经|刚|最近)*"  # each begins otherwise: nothing is tried twice
_PLACE: Final = r"(?P<value>[^，。,；;、和想要]{1,16}?)"
_SLOTS_CJK: Final = (
    (
        "home",
        re.compile(
            rf"^{_WHO_CJK}{_LATELY}(?:居住在|定居在|住在|搬家到|搬到|搬去|搬进|搬往)了?{_PLACE}"
            r"(?:生活|居住|去)?了?$"
        ),
    ),
    ("work", re.compile(rf"^{_WHO_CJK}{_LATELY}在{_PLACE}(?:工作|上班|任职|就职)了?$")),
    ("work", re.compile(rf"^{_WHO_CJK}{_LATELY}(?:入职|跳槽到|换到)了?{_PLACE}(?:工作|上班)?了?$")),
    ("age", re.compile(rf"^{_WHO_CJK}(?:今年|现在|已经|刚|满)*(?P<value>\d{{1,3}})岁了?$")),
)
_HELD_CJK: Final = re.compile(
    rf"^{_WHO_CJK}的?新?的?(?P<noun>电话号码|手机号码|手机号|电话|手机|电子邮箱|邮箱|地址|住址|门禁密码|"
    r"职业|工资|房租|最喜欢的[\u4e00-\u9fff]{1,4}?)(?:现在|已经)*"
    r"(?:是|改成|改为|换成|变成|[:：])了?(?P<value>[^，。,；;、]{1,40}?)了?$"
)
_WITH_NUMBER_CJK: Final = frozenset({"电话", "手机", "门禁密码", "工资", "房租"})
_NO_PLACE_CJK: Final = re.compile(
    r"公寓|房子|楼|附近|旁边|隔壁|对面|^[一这那哪个]|^家里?$|^公司|[早晚]上|白天|夜里|周末"
)
_DENIED_CJK: Final = (
    re.compile(r"^(?:现在|已经)*(?:不再|再也不)(?P<rest>.+?)了?$"),
    re.compile(r"^(?:现在|已经)*不(?P<rest>.+?)了$"),
)
_QUIT_CJK: Final = {"戒烟": "抽烟", "戒酒": "喝酒", "戒了烟": "抽烟", "戒了酒": "喝酒"}
_NUMBERS_CJK: Final = {"电话号码": "电话", "手机号码": "手机", "手机号": "手机", "电子邮箱": "邮箱"}


def _read_cjk(flat: str, context: str) -> Statement:
    said = re.sub(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])", "", flat.casefold()).strip("。.!！~ ")
    said = re.sub(r"^(?:请)?(?:记住|记得|备注)[,，:：]?", "", said)
    if len(said) < 3:
        return Statement()
    where = "" if _SELF_CJK.match(said) or said.startswith("我") else context
    said = _SELF_CJK.sub("", said)
    denied = _denied_cjk(said)
    slot, value = _slot_cjk(said)
    core = _core_cjk(denied or said)
    passes = bool(_PASSING_CJK.search(said))
    return Statement(
        core=f"{where}|{core}",
        is_lasting=bool(_STATES_CJK.search(said)) and not (denied or passes),
        passes=passes,
        slot=f"{where}|{slot}" if slot else "",
        value=value,
        denies=f"{where}|{core}" if denied else "",
    )


def _core_cjk(said: str) -> str:
    plain = re.sub(r"^(?:现在|目前|一直|平时)", "", said)
    return re.sub(r"[,，。;；!！\s]|[啊呀哦呢啦吧]$", "", plain)


def _slot_cjk(said: str) -> tuple[str, str]:
    for name, pattern in _SLOTS_CJK:
        found = pattern.match(said)
        if found is not None and not _NO_PLACE_CJK.search(found["value"]):
            return f"{_who_cjk(found)}|{name}", found["value"]
    held = _HELD_CJK.match(said)
    if held is None:
        return "", ""
    noun = _NUMBERS_CJK.get(held["noun"], held["noun"])
    if noun in _WITH_NUMBER_CJK and not any(map(str.isdigit, held["value"])):
        return "", ""
    return f"{_who_cjk(held)}|{noun}", held["value"]


def _who_cjk(found: re.Match[str]) -> str:
    return (found["who"] or "").replace("我的", "").replace("我", "")


def _denied_cjk(said: str) -> str:
    if said in _QUIT_CJK or said.removesuffix("了") in _QUIT_CJK:
        return _QUIT_CJK.get(said) or _QUIT_CJK[said.removesuffix("了")]
    found = next((m for each in _DENIED_CJK if (m := each.match(said))), None)
    return found["rest"] if found is not None else ""
