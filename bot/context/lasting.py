"""Whether what somebody says still matters in a month, by what the sentence says itself. Pure.

That needs strong evidence: it says what somebody is, has or does as a rule, what became of their
life, what is decided, or what happens on which day. What is merely going on, what has just been
done and what points to the conversation itself ("the second one", 这个) is not kept.
"""

from __future__ import annotations

import re

from bot.clock import MONTH_NAME
from bot.context import extract, wording

FEW_WORDS = 8  # of a sentence that is nothing without what its last word points to
FEWEST_BESIDE = 2  # words, beside the day
BRIEF = 6  # characters of what has a day and says nothing besides
MOST_CLAUSES = 6  # of a statement; what has more tells a story

_KIN = (
    r"(?:(?:grand|step)\w+|daughters?|sons?|wife|husband|partner|girlfriend|boyfriend|fianc\w+"
    r"|mother|mum|mom|father|dad|parents?|sisters?|brothers?|siblings|twins?|aunts?|uncles?"
    r"|nieces?|nephews?|cousins?|kids?|child|children|baby|boss|neighbou?rs?|friends?"
    r"|colleagues?|\w+-in-law|eldest|youngest|flatmates?|room-?mates?|cats?|dogs?|gran|nan)"
)
_KIN_ZH = (
    "(?:[爸妈爷奶姐哥弟妹舅姑姨叔婶嫂]{1,2}|外[公婆]|老[公婆大二]|婆婆|公公|岳[父母]|父[亲母]|母亲"
    "|女儿|儿子|孩子|宝宝|丈夫|妻子|先生|太太|对象|[男女]朋友|侄[子女]|外甥女?|孙[子女]"
    "|[表堂][哥姐弟妹]|室友|闺蜜|同[学事]|朋友|老板|房东|邻居|[狗猫])"
)
_OF_LIFE = (  # what somebody has for long
    r"(?:name|surname|nickname|birthday|anniversary|blood \w+|height|size|job|work|office|company"
    r"|shop|salary|pension|address|home|house|flat|apartment|room|garden|car|bike|boat|motorbike"
    r"|phone number|number plate|bank|landlord|landlady|doctor|dentist|therapist|teacher|school"
    r"|class|team|band|choir|church|thesis|degree|diet|medication|allergy|favou?rite|hobby"
    r"|language|mother tongue|wedding|surgery|operation|exam|interview|appointment|budget|rent"
    r"|lease|contract|mortgage|loan|insurance|passport|visa|licen[cs]e)"
)
_SELDOM = (
    r"(?:(?:always|never|usually|often|rarely|still|mostly|only|also|now|once|both|[a-z]+ly)\s+)*"
)
_VERB_OF_STATE = (
    r"(?:live|work|own|speak|study|studie|teach|teache|collect|belong|drive|prefer|hate|love"
    r"|like|dislike|avoid|play|sing|practi[sc]e|train|volunteer|commute|rent|run|breed|grow"
    r"|suffer|weigh|earn|manage|celebrate|share)s?(?!\s+(?:it|that|this|them|how|what|when|out|on"
    r"|off|your|for (?:it|this|that))\b)"
)
_COUNT = r"(?:an?|two|three|four|five|six|seven|eight|nine|ten|\d+)"
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"

# What somebody or something of theirs is, has and does as a rule.
_IS = re.compile(
    r"\b(?:I['’]?m|I am|we['’]?re|we are|I was|we were)\s+(?:\w+ly\s+|also\s+|now\s+|not\s+)*"
    r"(?:an?\s(?!bit|little|mess|wreck|zombie|fan of (?:it|that|this))|the\s\w+\s(?:of|at|in)\b"
    r"|\d\d?\b(?!\s*(?:minutes?|hours?|%|percent))|from\b|born\b|called\b|named\b|left-|right-"
    r"|colou?r.?blind|deaf|pregnant|divorced|married|engaged|single|widowed|retired|self-employed"
    r"|unemployed|autistic|dyslexic|raising|expecting|learning|training|studying|working (?:as|at"
    r"|in|for)|living|moving|renting|getting (?:married|divorced)|saving up|paid\b"
    r"|(?-i:(?!OK)[A-Z])\w"
    r"|doing (?:an?|my) (?:PhD|master|degree|apprentice|intern)"
    r"|in (?:my|our) \w+\s+year|on (?:insulin|medication|a diet))"
    r"|\b(?:allergic|allergy|intolerant|vegetarian|vegan|diabetic|asthma|diabetes|epilepsy)\b",
    re.IGNORECASE,
)
_DOES = re.compile(
    rf"\b(?:I|we)(?:['’]ve)?\s+{_SELDOM}(?:{_VERB_OF_STATE}|was born|were born|grew up|used to"
    r"|(?:can['’]?t|cannot|don['’]?t|do not|never) (?:stand|eat|drink|drive|smoke|like|speak|swim"
    r"|hear|see|have an?y?))\b"
    r"|\b(?:I|we)(?:['’]ve got|['’]ve| have| had| keep)\s+(?!a (?:call|look|question|go|feeling"
    r"|problem|headache|cold|bug|bad|weird|nice|meeting|minute|moment|break|lot|few|bit|plan))"
    rf"(?:{_COUNT}|{_KIN})\b(?!\s(?:(?:more|other|last|quick)\s)*(?:questions?|ideas?|minutes?"
    r"|hours?|tabs?|files?|options?|problems?|issues?|errors?|things?|versions?|lines?)\b)"
    r"|\b(?:I|we)\s+(?:always|never|usually|often)\s+(?!\w+ed\b|knew|thought|saw|heard|got|mind)\w+"
    r"|\b(?:I|we)\s+\w+[^,.]*\b(?:every|each) (?:\w+ )?(?:day|night|morning|evening|week|weekend"
    rf"|month|year|{_WEEKDAY})\b|\bon {_WEEKDAY}s\b"
    r"|\b(?:I|we)(?:['’]ve| have)\b[^,.]*\b(?:for|since) (?:\w+ )?(?:years?|months|decades"
    r"|childhood|school|the|my|I|\d{4})\b|\bfor a living\b"
    r"|\bcall me (?!later|back|when|if|tomorrow|crazy|old|stupid)"
    r"|\b(?:I|we) (?:get up|wake up|take|pay|use|go|eat|drink|meet|listen) [^,.]*(?:\d|\bto\b)",
    re.IGNORECASE,
)
_THEY_ARE = re.compile(
    rf"\b(?:{_KIN}|[A-ZÀ-Þ]\w+|he|she|they)(?:['’]s|['’]re|\s+(?:is|are|was|were|has|have))\s+"
    rf"(?:(?:now|also|both|nearly|only)\s+)*(?:{_COUNT}|the|my|our|from|called|named|allergic|born"
    r"|(?:in|at)(?! (?:the|an?|my|home|work|lunch))|afraid of|pregnant|retired"
    r"|vegan|vegetarian|diabetic|deaf|blind|divorced|married"
    r"|engaged|expecting|studying|learning|moving|getting married|visiting|opening|turning)\b"
    rf"|\b(?:{_KIN}|he|she|they)(?:\s(?!and\b)[A-ZÀ-Þ]\w+)?\s+{_SELDOM}(?:{_VERB_OF_STATE}|turns"
    r"|needs|can['’]?t|doesn['’]?t|don['’]?t)\s\w+",
)
_NAMED = re.compile(
    r"\b(?:[Mm]y|[Oo]ur) (?:[a-zß-ÿ-]+ ){0,2}[a-zß-ÿ-]+,? [A-ZÀ-Þ]\w+|\b(?:called|named) [A-ZÀ-Þ]"
)
_OURS_IS = re.compile(
    rf"\b(?:my|our)\s+(?:\w+\s+){{0,2}}{_OF_LIFE}\b[^,.]*?(?:['’]s|\s(?:are|were|\w+s))\s"
    r"(?!(?<=\b(?:is|as|re|'s|’s) )(?:\w+ly )?[a-z]+\W*$)"  # "is dirty"
    r"|\bmy (?:\w+ )?(?:name|favou?rite \w+|mother tongue|job)(?:['’]s| is)\b",
    re.IGNORECASE,
)
_THING_OF_LIFE = re.compile(rf"\b{_OF_LIFE}\b", re.IGNORECASE)

# What became of somebody's life, what is decided, how the bot is to answer.
_BECAME = re.compile(
    rf"\b(?:I|we|{_KIN}|[A-ZÀ-Þ]\w+)(?:['’]ve| have| has| just| had| finally)*\s+"
    r"(?:moved (?:to|in|out|here|there|from)|got (?:married|divorced|engaged|promoted|fired"
    r"|(?:a|the|my) (?:new )?(?:job|licen[cs]e|visa|place))|broke up"
    r"|lost (?:my|his|her|our) (?:job|wife|husband"
    r"|\w*ther|mum|dad|sight|hearing|baby)|married|divorced|adopted|retire[ds]|quit"
    r"|graduated|joined (?!the (?:call|meeting|chat))|enrolled|signed (?!up|in|off|out)"
    r"|passed away|died|had (?:a baby|her baby|surgery|a stroke)"
    r"|(?:was|been) (?:accepted|admitted|promoted|diagnosed|hired|laid off|born)"
    r"|started (?:a|as|at|school|university|working|learning|playing|taking)|stopped \w+ing"
    r"|gave up|became|founded|inherited|sold (?:my|our|the)|bought (?:an?|our|the) (?:\w+ ){0,2}"
    r"(?:house|flat|car|bike|boat|van|dog|cat|piano|farm|[A-Z]\w+))\b"
)
_DECIDED = re.compile(
    r"\b(?:I|we)(?:['’]ve| have|['’]ll)?\s+(?:finally\s+)?(?:decided|chosen|chose|agreed|settled"
    r"|promised|picked)\s+(?!you\b)\w+ \w+|\b(?:I|we) owe\b|\blet['’]s go with\b|\bgoing with the\b"
    r"|['’]ll \w+ [^,.]*\binstead\b"
    r"|\b(?:must|have to|still need|need to)\b[^,.]*\b(?:by|before|until) [^,.]*(?:\d|day|end)",
    re.IGNORECASE,
)
_STANDING = re.compile(
    r"\b(?:when(?:ever)? you|from now on|(?:in your|keep|keep your) (?:answers|replies))\b"
    r"|^(?:please )?(?:always|never (?!mind)|don['’]?t (?:ever )?(?:use|put|write|call me|suggest"
    r"|recommend)(?! (?:this|that|it)\b))\b.{8,}"
    r"|以后(?:都|别|不|请|就|用|叫)|的时候[请都]?(?:别|不要|少|用|要)|(?:别|不要)(?:再)?(?:给我|推荐|叫我)",
    re.IGNORECASE,
)

# The same in Chinese; whose it is may be left out where the word leaves no doubt.
_WHO_ZH = f"(?:[我咱]们?(?:的|家|这边)*{_KIN_ZH}?|{_KIN_ZH})"
_IS_ZH = re.compile(
    rf"{_WHO_ZH}[^，。]{{0,8}}?(?:(?<![还不])是(?![不说想怕这那在要啊的吗]|.{{1,2}}的$)"
    r"|叫(?![我你他她它了人外])|姓|会[说弹拉画]"
    r"|教(?!我|你|一下)|习惯(?!性)|最怕|怕(?![^，。]{0,3}[不没])|一直(?!在?等)|当[^然时成做]|带[两三]个|[^，。]{0,4}(?:喜欢|讨厌)(?![这那第你])"
    "|有(?:[一二两三四五\\d]?个?[女儿哥姐弟妹孩]|[^，。]{0,4}(?:病|症|血压|哮喘|过敏史)|房|车|驾照"
    "|[\\d一二两三四五]*[口只条套辆]))"
    "|属[鼠牛虎兔龙蛇马羊猴鸡狗猪]|(?<![卡停忍记])住(?![口手了])|家在|养[了着]?[\\d一两只条]|毕业于"
    "|[读学开报]的是|用的.{0,4}是|学会计|学过|开(?:了[家一个]|一[家辆])|出生"
    "|今年[^，。]{0,3}[\\d一二三四五六七八九十]"
    "|在[^，。]{1,10}?(?:工作|上班|上学|读|念|租|当|教|做[^饭完好菜]|开(?!会|车)|留学|待了|任|就[读职]|[大中小]学|年级)"
    "|过敏|不耐受|不[能肯]?(?:吃|喝|抽|沾|碰)|吃素|[吃喝]不[惯了]|不会[开游做说]|爱[吃喝看听]|从小|打工|合租|嫁[到给了]"
    "|在部队|今年[高中]考|老家|户口|一[周个月天年]{1,2}[^，。]{0,6}次|多年|长期"
    "|(?:^|[我他她，])[^，。]{0,4}(?:每[天周月年晚早个]|平时|一般(?![吧般]))"
    "|[大初高小研][一二三四五六](?!点)|上[小初高大]|[一二三四五六七八九\\d]年级|[\\d一二三四五六七八九十]+岁"
    "|[爸妈爷奶][\\d一二三四五六七八九十]+了|[去前今]年走了|了[\\d一二三四五六七八九十]+年"
    "|糖尿病|高血压|左撇子|色盲|听不|看不见|怀孕|月薪|房贷|身高|体重|教书|预算.{0,4}(?:最多|不超过|是)"
)
_BECAME_ZH = re.compile(
    "结了?婚|离了?婚|退休|辞职|辞了|跳槽|入职|毕业|考上|录取|升职|升了|搬[到家去进]|分手|去世|生了个"
    "|确诊|住院|做[了过]?.{0,4}手术|拿了.{1,8}奖|签了(?![名字到收])|改到|部署在|买了(?:新?[房车套辆]|一[套辆])"
    "|换了?(?:工作|房|车|新(?!的))|调到|调令|公司派|跟我姓|戒了"
)
_DECIDED_ZH = re.compile(
    "(?:决定|打算)(?!先)|商量好|说好了|说定|(?<!搞)定了[，,：:]|就?定[在了](?=.{2})(?<!搞定了)|答应(?:了|给|.{1,4}[帮去要])"
    "|[后是都]选了|计划|[要得必须](?:在|于)?.{0,12}之?前|前[要得]|还得|欠.{1,8}[块元万千百]"
    "|改[学去用在到成吃坐喝]|公司派"
)

_WHEN = re.compile(
    rf"\b(?:tomorrow|{_WEEKDAY}s?|next (?:week|month|year|spring|summer|autumn|winter)|between \d"
    rf"|the end of|the \d{{1,2}}(?:st|nd|rd|th)|the (?:first|second|third) of|{MONTH_NAME})\b"
    r"|\b(?:19|20)\d\d\b|(?:周|星期|礼拜)[一二三四五六日天]|明天|后天|下(?:周|个?月)|明年|月底|年底|春节"
    r"|[\d一二三四五六七八九十两]\s*[号点]|(?:19|20)\d\d年",
    re.IGNORECASE,
)
_HAPPENS = re.compile(
    r"\b(?:I|we|my|our|comes?|leaves?|arrives?|starts?|begins?|opens?|is|are|moved|ends?|expires?"
    r"|due|must|needs? to|has to|have to)\b"
    r"|[我咱家要得去到爸妈会约定改签飞办开起带陪接送交还来]|孩子|手术|检查",
    re.IGNORECASE,
)
_EVENT = re.compile(
    r"\b(?:interview|appointment|meeting|exam|test|surgery|flight|train|wedding|party|funeral"
    r"|concert|deadline|vet|dentist|doctor|match|rehearsal|class|course|launch|reunion|viewing"
    r"|delivery|dinner|lunch|session)\b"
    r"|面试|考试|会议|手术|航班|婚礼|聚会|体检|家长会|预约|答辩|演出|比赛|年会|合同|复查|签证|疫苗|聚餐|讲座",
    re.IGNORECASE,
)

# What is going on now, points to what else was said, or complains of a thing.
_NOW = re.compile(
    r"\b(?:right now|right away|at the moment|just now|as we speak|any minute|today|tonight"
    r"|for a (?:moment|minute|second|bit)|in (?:a|one|two|five|ten|\d+) (?:minutes?|seconds?"
    r"|moment)|this (?:morning|afternoon|evening)|last night|yesterday|again|already|lately"
    r"|these days)\b|\bnow\W*$"
    r"|今[天晚早]|昨[天晚]|刚(?:刚|才)|正在|又|最近|这[几两]天|待会儿?|马上|回头|先(?!生)",
    re.IGNORECASE,
)
_POINTS = re.compile(
    r"\bthe (?:\w+ ones?|(?:first|second|third|last|other|next|same|new|old) (?:part|line|version"
    r"|answer|question|option|idea|step|page|result|message|point))\b"
    r"|\b(?:this|that|your) (?:idea|song|version|answer|list|text|recipe|poem|book|film|movie"
    r"|question|advice|tip)\b"
    r"|第[一二三四五\d]+[个种段版句条]|[这那][个些样首种句段本部么]|你(?!们家)|一下|换个说法|的意思",
    re.IGNORECASE,
)
_ENDS_POINTING = re.compile(
    r"\b(?:it|that|them|this|these|those|ones?|there|here|you|yours?|so|then)\W*$", re.IGNORECASE
)
_WAS = re.compile(r"\b(?:was|were|went)\b", re.IGNORECASE)
_IT = re.compile(r"\b(?:it|them|that|this|you)\b", re.IGNORECASE)
_FAILS = re.compile(
    r"\b(?:error|exception|traceback|warning|fails?|failed|crash\w*|bug)\b|\bwhat an?\b"
    r"|\bover my dead\b|\bI (?:get|got|see|saw) (?:an? |the )?(?:\d|error|message|nothing|result)"
    r"|真的?(?:离谱|好笑|烦|服了)|太(?:好笑|多|贵|吵)|报错|[坏卡]了|没[电网]|死机|打不开|找不到",
    re.IGNORECASE,
)
_BARE_PAIR = re.compile(r"\W*\w+ (?:and|or) \w+\W*")  # "balloons and candles"
_CLAUSE = re.compile(r"[，,；;]")


def is_lasting(sentence: str) -> bool:
    """True when a statement is worth keeping, by what it says itself."""
    if _is_nothing(sentence):
        return False
    if _changes(sentence) or _is_dated(sentence):
        return True
    if _NOW.search(sentence) and not wording.numbers(sentence):
        return False
    return not _points(sentence) and _is_rule(sentence)


def _is_nothing(sentence: str) -> bool:
    """True when a sentence says nothing, complains of a thing, or tells a story."""
    if _BARE_PAIR.fullmatch(sentence) or _FAILS.search(sentence):
        return True
    if len(_CLAUSE.split(sentence)) > MOST_CLAUSES:
        return True
    return len(wording.words(sentence)) < 2 and not _IS.search(sentence)


def _points(sentence: str) -> bool:
    """True when a sentence is about something else in the conversation."""
    is_short = len(sentence.split()) <= FEW_WORDS
    return bool(_POINTS.search(sentence) or (is_short and _ENDS_POINTING.search(sentence)))


def _changes(sentence: str) -> bool:
    """True when a sentence tells a turn in a life, a decision, or how to answer from now on."""
    each = (_BECAME, _BECAME_ZH, _DECIDED, _DECIDED_ZH, _STANDING)
    return any(pattern.search(sentence) for pattern in each)


def _is_dated(sentence: str) -> bool:
    """True when a sentence says what happens on which day."""
    when = _WHEN.search(sentence)
    exact = extract.is_exact(sentence)
    if _EVENT.search(sentence) and (exact or (when and not _WAS.search(sentence))):
        return True
    if len(wording.words(_WHEN.sub(" ", sentence))) < FEWEST_BESIDE or _WAS.search(sentence):
        return False
    if not when or not _HAPPENS.search(sentence) or len(sentence) <= BRIEF:
        return False
    return not _points(sentence) and bool(extract.names(sentence) or not _IT.search(sentence))


def _is_rule(sentence: str) -> bool:
    """True when a sentence says what somebody or something of theirs is, has or does as a rule."""
    own = (_IS, _DOES, _OURS_IS, _THEY_ARE, _NAMED, _IS_ZH)
    if any(pattern.search(sentence) for pattern in own) or extract.is_placed(sentence):
        return True
    about = extract.WEIGHTY.search(sentence) or _THING_OF_LIFE.search(sentence)
    return extract.is_exact(sentence) and (bool(extract.names(sentence)) or about is not None)
