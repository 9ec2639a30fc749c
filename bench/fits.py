"""Whether a search can tell that nothing fits: `python -m bench fits`.

Sixty-four made-up notes, half of them Chinese, are asked about as a person would in the page or by
`/memory search`. Of 128 questions, 64 are answered by one note, most of them in other words, and 64
are about something that no note knows of. A question is right when its note is shown, or when
nothing is. What decides it is how near in meaning a passage must be to be shown at all (`MEANT` in
`bot.memory.ranking`), so it is tried with several bounds. Every other question is of the half by
which the bound is chosen; the figures of the other half are those to be told.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import quiet, sized
from bot.clock import system_clock
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed, ranking
from bot.memory.index import MemoryIndex
from bot.memory.note_store import FolderNotes

BOUNDS = (0.15, 0.2, 0.225, 0.25, 0.275, 0.3, 0.35, 0.4)
LEFT_OUT = 3  # times as many passages are asked for as are shown, as the page does

# A note, and a question it answers; then a question nobody has noted anything about.
ENGLISH = (
    ("My daughter Mia is allergic to peanuts.", "which nuts can my child not eat"),
    ("The spare key is under the flower pot by the garage.", "how do I get in when locked out"),
    ("Our landlord is Mr Olsen, rent is due on the 5th.", "when do I pay for the flat"),
    ("Dentist appointment on 14 May with Dr Rivera.", "when are my teeth looked at"),
    ("The wifi password is written behind the bookshelf.", "internet login at home"),
    ("I quit smoking in January 2025.", "do I still use cigarettes"),
    ("My brother Tom works as a pilot for a cargo airline.", "what is Tom's job"),
    ("We adopted a grey cat called Biscuit.", "name of our pet"),
    ("The car needs new brakes before the winter.", "what must be repaired on the vehicle"),
    ("I prefer window seats on trains.", "where do I like to sit when travelling"),
    ("Grandma takes her blood pressure pills after breakfast.", "grandmother's medicine"),
    ("The anniversary dinner is booked at Luigi's for eight.", "restaurant reservation"),
    ("I am learning Spanish with a teacher from Seville.", "which language do I study"),
    ("The boiler was serviced by Hansen Heating in March.", "who looked after the heating"),
    ("My passport expires in June 2029.", "how long are my travel documents valid"),
    ("Our wedding was on 3 September 2016 in Bergen.", "when did we get married"),
    ("I sleep badly when I drink coffee after four.", "why do I lie awake at night"),
    ("The quarterly report goes to Ingrid by Friday.", "deadline for the report"),
    ("My blood type is AB negative.", "which blood group do I have"),
    ("The garden tomatoes are watered every morning.", "caring for the vegetables"),
    ("Aunt Rosa moved to a nursing home in Lyon.", "where does my aunt live now"),
    ("My bicycle was stolen outside the library.", "what happened to the bike"),
    ("I am paid on the 25th of each month.", "when does my salary come"),
    ("The children start school again on 18 August.", "end of the summer holidays"),
    ("My favourite composer is Dvorak.", "which music do I love most"),
    ("The insurance policy is with Nordlys, number 88-4120.", "insurance company"),
    ("I have been a vegetarian since 2012.", "do I eat meat"),
    ("The attic window leaks when it rains.", "where does water come in"),
    ("Peter still owes me 200 euros.", "who has to give me money back"),
    ("My running shoes are size 43.", "which shoes fit me"),
    ("The code of the office alarm is in the blue folder.", "alarm at work"),
    ("I want to see the northern lights in Tromso.", "which trip do I dream of"),
)
ENGLISH_NOTHING = (
    *("how tall is the Eiffel tower", "my tax number", "recipe for pancakes", "chess openings"),
    *("who won the football match", "stock prices of last week", "my sister's birthday"),
    *("the size of my swimming pool", "how to fold a paper crane", "volcanoes in Iceland"),
    *("which laptop did I buy", "the plot of Hamlet", "my horse's saddle", "quantum computing"),
    *("the colour of the sofa", "guitar chords for beginners", "when was the roof painted"),
    *("parking fine in Berlin", "population of Brazil", "my lawyer's phone", "knitting patterns"),
    *("elections in Canada", "how do submarines dive", "the neighbour's dog", "camera lenses"),
    *("my gym membership", "ancient Egyptian pyramids", "the boat's engine", "photosynthesis"),
    *("golf handicap", "conference in Singapore", "how much did the piano cost"),
)
CHINESE = (
    ("女儿小雨对花生过敏。", "孩子不能吃什么坚果"),
    ("备用钥匙放在车库旁边的花盆下面。", "没带钥匙怎么进门"),
    ("房东姓陈，每月五号交房租。", "住房费用什么时候付"),
    ("五月十四号去看牙医王大夫。", "哪天检查牙齿"),
    ("路由器密码贴在书架后面。", "家里上网的密码"),
    ("我今年一月戒烟了。", "我还抽香烟吗"),
    ("弟弟在货运航空公司当飞行员。", "弟弟的职业"),
    ("我们收养了一只灰色的猫，叫饼干。", "宠物的名字"),
    ("冬天之前要给汽车换刹车片。", "车子需要修理哪里"),
    ("坐火车我喜欢靠窗的座位。", "旅行时爱坐哪里"),
    ("奶奶的降压药早饭后吃。", "老人的药物"),
    ("结婚纪念日订了聚福楼的晚饭。", "预订了哪家餐馆"),
    ("我在跟一位老师学西班牙语。", "我在学习哪门外语"),
    ("三月请师傅检修过锅炉。", "谁维护了暖气设备"),
    ("护照二零二九年六月到期。", "出国证件的有效期"),
    ("我们二零一六年九月在青岛办的婚礼。", "什么时候结婚的"),
    ("下午喝咖啡晚上就失眠。", "为什么睡不着觉"),
    ("季度报告周五之前交给李总。", "报告的截止时间"),
    ("我的血型是AB型。", "血型是什么"),
    ("阳台的番茄每天早上浇水。", "怎么照顾蔬菜"),
    ("姑姑搬到了杭州的养老院。", "姑姑现在住在哪儿"),
    ("自行车在图书馆门口被偷了。", "单车丢在哪里"),
    ("每月二十五号发工资。", "薪水什么时候到账"),
    ("孩子们八月十八号开学。", "暑假哪天结束"),
    ("我最喜欢的作曲家是贝多芬。", "最爱哪位音乐家"),
    ("车险是平安保险的，保单在抽屉里。", "保险公司"),
    ("我从二零一二年开始吃素。", "我吃肉吗"),
    ("阁楼的窗户下雨会漏水。", "房子哪里进水"),
    ("老周还欠我两千块钱。", "谁该还钱给我"),
    ("我的跑鞋是四十三码。", "鞋子的尺寸"),
    ("办公室警报的密码在蓝色文件夹里。", "公司的报警密码"),
    ("我想去漠河看极光。", "梦想去哪里旅游"),
)
CHINESE_NOTHING = (
    *("埃菲尔铁塔有多高", "我的税号", "蛋糕的做法", "围棋定式", "谁赢了足球比赛"),
    *("上周的股票价格", "表姐的生日", "游泳池的大小", "纸鹤怎么折", "冰岛的火山"),
    *("买了哪台笔记本电脑", "红楼梦的情节", "马鞍放在哪里", "量子计算", "沙发的颜色"),
    *("吉他和弦入门", "屋顶哪年刷的漆", "停车罚款", "巴西的人口", "律师的电话"),
    *("毛衣的织法", "加拿大的选举", "潜水艇如何下潜", "邻居家的狗", "相机镜头"),
    *("健身房会员卡", "古埃及金字塔", "船的发动机", "光合作用", "高尔夫成绩"),
    *("新加坡的会议", "钢琴花了多少钱"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """Something asked; `path` is the note that answers it, empty when none does."""

    words: str
    path: str
    language: str


@dataclass(frozen=True, slots=True)
class Right:
    """How many questions of a kind were right, of how many."""

    right: int
    asked: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.right / self.asked


def write_notes(workspace: Path) -> list[Question]:
    """Write the notes; the questions, those of either half in turn."""
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    asked: list[Question] = []
    both = (("en", ENGLISH, ENGLISH_NOTHING), ("zh", CHINESE, CHINESE_NOTHING))
    for language, pairs, nothing in both:
        for number, (note, words) in enumerate(pairs):
            path = f"memory/{language}-{number}.md"
            (workspace / path).write_text(f"- {note}\n", "utf-8")
            asked.append(Question(words, path, language))
        asked += [Question(words, "", language) for words in nothing]
    return asked


async def ask(index: MemoryIndex, asked: Sequence[Question], most: int) -> list[bool]:
    """Whether each question was right with the bound that is set."""
    found: list[bool] = []
    for each in asked:
        answer = await index.search(each.words, ["main"], most * LEFT_OUT)
        shown = [hit.path for hit in answer.hits if hit.why.is_any][:most]
        found.append(each.path in shown if each.path else not shown)
    return found


async def measure(folder: Path, every: int) -> dict[float, list[tuple[Question, bool]]]:
    """Every question with whether it was right, by bound."""
    config = MemoryConfig(watch=False)
    embedder = embed.make(config.embedder, folder / "index")
    asked = write_notes(folder / "workspace")[::every]
    index = MemoryIndex.in_folder(
        Settings(Config(memory=config)),
        FolderNotes(folder / "workspace"),
        folder / "index",
        embedder,
        system_clock,
    )
    rounds: dict[float, list[tuple[Question, bool]]] = {}
    used = ranking.MEANT
    try:
        await index.sync("bench")
        for bound in BOUNDS:
            ranking.MEANT = bound
            right = await ask(index, asked, config.max_results)
            rounds[bound] = list(zip(asked, right, strict=True))
    finally:
        ranking.MEANT = used
        await index.close()
        await embedder.close()
    return rounds


def share(answers: Sequence[tuple[Question, bool]], *, fits: bool, language: str = "") -> Right:
    """How many of the questions that something fits, or nothing, were right."""
    those = [
        right
        for each, right in answers
        if bool(each.path) == fits and language in {"", each.language}
    ]
    return Right(sum(those), len(those))


def balance(answers: Sequence[tuple[Question, bool]]) -> float:
    """The mean of both shares: telling everything, or nothing, is worth a half."""
    return (share(answers, fits=True).share + share(answers, fits=False).share) / 2


def main() -> int:
    """Measure and print."""
    quiet.logs()
    every = sized.every("fits", few=11)
    with tempfile.TemporaryDirectory() as name:
        rounds = asyncio.run(measure(Path(name), every))
    chosen = max(rounds, key=lambda bound: balance(rounds[bound][::2]))
    print("| bound | half | balance | found | of them English | Chinese | told that nothing fits |")
    print("|---|---|---|---|---|---|---|")
    for bound, answers in rounds.items():
        for half, those in (("choosing", answers[::2]), ("telling", answers[1::2])):
            found = share(those, fits=True)
            english, chinese = (share(those, fits=True, language=one) for one in ("en", "zh"))
            silent = share(those, fits=False)
            marks = " ← used" if bound == ranking.MEANT else ""
            marks += " ← best" if bound == chosen and half == "choosing" else ""
            print(
                f"| {bound:.3f}{marks} | {half} | {balance(those):.3f} "
                f"| {found.right} of {found.asked} | {english.right} | {chinese.right} "
                f"| {silent.right} of {silent.asked} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
