"""How much is found in Chinese: `python -m bench chinese`.

Each note is one day's and has one question; a search is right when that note comes first. Some
questions have no word in common with their note, only its meaning (`OTHER_WORDS`); some are single
words of one or two characters (`SHORT`); some ask in Chinese for what was noted in English, or the
other way round (`ACROSS`).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from bench import quiet, sized
from bot.clock import system_clock
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed
from bot.memory.index import MemoryIndex
from bot.memory.note_store import FolderNotes

FIRST_DAY = date(2024, 1, 1)
MODES: Mapping[str, Mapping[str, Any]] = {
    "keyword": {"vector_weight": 0.0},
    "vector": {"text_weight": 0.0},
    "fused": {},
}

SAME_WORDS = (
    ("我女儿小雨对花生过敏,吃了会起疹子。", "小雨对什么过敏?"),
    ("每周三晚上七点在体育馆打羽毛球。", "羽毛球是星期几打?"),
    ("我的车停在地下二层B区,车位号是217。", "车位号是多少?"),
    ("去年秋天和爸妈去了敦煌,看了莫高窟。", "什么时候去看的莫高窟?"),
    ("新公司在望京,坐地铁十五号线上班。", "上班坐几号线?"),
    ("房东姓陈,每月五号之前交房租。", "房租几号之前交?"),
    ("奶奶的降压药是氨氯地平,早饭后吃一片。", "奶奶的降压药什么时候吃?"),
    ("我在学西班牙语,用的教材是《走遍西班牙》。", "学西班牙语用什么教材?"),
    ("护照二零二九年六月到期。", "我的护照什么时候到期?"),
    ("大学室友阿杰下个月在成都办婚礼。", "阿杰的婚礼在哪里办?"),
    ("路由器的密码贴在书架后面。", "路由器的密码在哪里?"),
    ("我的血型是AB型,献过两次血。", "我是什么血型?"),
    ("厨房的净水器滤芯每半年换一次。", "净水器滤芯多久换一次?"),
    ("给爷爷买的轮椅是折叠款,放在后备箱。", "爷爷的轮椅放在哪里?"),
    ("下周要给投资人讲季度报告,先练两遍。", "季度报告要讲给谁听?"),
    ("阳台的番茄开花了,每天早上浇水。", "番茄什么时候浇水?"),
    ("我最喜欢的作家是汪曾祺。", "我最喜欢哪个作家?"),
    ("表妹在墨尔本读建筑系研究生。", "表妹读什么系?"),
    ("项目代号叫北极星,十月上线。", "北极星什么时候上线?"),
    ("健身教练说我膝盖不好,少做深蹲。", "教练为什么让我少做深蹲?"),
    ("咖啡只喝手冲,豆子要浅烘的。", "咖啡豆要什么烘焙的?"),
    ("王老师的办公室搬到了三号楼五层。", "王老师的办公室在几号楼?"),
    ("家里的保险柜钥匙在妈妈的首饰盒里。", "保险柜钥匙在哪儿?"),
    ("我报名了十一月的半程马拉松。", "我报名了几月的马拉松?"),
    ("小区的快递柜取件码发到旧手机上。", "取件码发到哪个手机?"),
    ("去冰岛要先申请申根签证。", "去冰岛要申请什么签证?"),
    ("弟弟的生日是腊月初八。", "弟弟的生日是哪天?"),
    ("隔壁李阿姨帮我收过两次包裹。", "谁帮我收过包裹?"),
    ("打印机卡纸要从背面打开。", "打印机卡纸怎么办?"),
    ("医生建议每年做一次胃镜。", "胃镜多久做一次?"),
)
OTHER_WORDS = (
    ("昨晚失眠到三点,今天头很疼。", "最近睡得好吗?"),
    ("我不吃肉,只吃蔬菜和豆腐。", "素食者能点啥菜?"),
    ("刚领养了一只橘色的小猫。", "家里宠物是什么?"),
    ("下个月要搬去上海工作。", "打算到哪座城市发展?"),
    ("妻子怀孕五个月了。", "宝宝预产大约何时?"),
    ("老板给我涨了工资。", "薪水有变化吗?"),
    ("体检发现血糖偏高,要少吃甜食。", "糖尿病风险怎样?"),
    ("周末常去爬山和露营。", "户外运动爱好有哪些?"),
    ("我害怕坐飞机,宁可坐火车。", "出行为何避开航班?"),
    ("儿子考上了清华大学。", "孩子升学结果如何?"),
    ("最近在读一本关于罗马帝国的小说。", "正看着的书讲啥历史?"),
    ("外婆上周去世了,心里很难过。", "亲人离开后情绪如何?"),
    ("想买一辆电动汽车,预算二十万。", "购车打算花多少钱?"),
    ("我在乐队里弹吉他。", "会演奏哪种乐器?"),
    ("牛奶喝了会拉肚子。", "乳糖不耐受有啥症状?"),
    ("公司裁员,我上个月失业了。", "现在找到职位没有?"),
    ("每天早上跑步五公里。", "坚持锻炼身体吗?"),
    ("家乡在湖南,爱吃辣椒。", "口味偏重还是清淡?"),
    ("孩子的数学成绩下降,想请家教。", "学习辅导需要补哪门课程?"),
    ("新买的房子在装修,先住在父母家。", "目前住处是哪里?"),
    ("和男朋友分手了,心情很差。", "恋爱关系还好吗?"),
    ("我眼睛近视六百度,想做手术。", "视力矫正有打算吗?"),
)
SHORT = (
    ("门口的鞋柜上放着一把红伞。", "伞"),
    ("明天早上记得带狗去打疫苗。", "狗"),
    ("冰箱里的鱼要今天做掉。", "鱼"),
    ("书桌抽屉里有备用的灯。", "灯"),
    ("给姐姐带两盒茶。", "茶"),
    ("阁楼的窗关不严,下雨会漏。", "窗"),
    ("年夜饭定在聚福楼的包间。", "包间"),
    ("存折放在衣柜的最上层。", "存折"),
    ("滑雪板借给了同事老周。", "滑雪"),
    ("空调遥控器的电池没电了。", "空调"),
    ("物业电话写在门后的纸条上。", "物业"),
    ("牙医约在本月二十号下午。", "牙医"),
)

ACROSS = (
    ("The plumber comes on Tuesday to fix the kitchen sink.", "水管工哪天来?"),
    ("My wife is expecting a baby in March.", "妻子什么时候生孩子?"),
    ("The spare tyre is in the garage behind the bicycles.", "备胎放在哪里?"),
    ("I am allergic to penicillin.", "我对哪种药物过敏?"),
    ("Grandfather was a fisherman in Norway.", "祖父的职业是什么?"),
    ("We booked a hotel in Lisbon for the summer holiday.", "暑假订了哪里的酒店?"),
    ("My boss wants the quarterly budget by Friday.", "老板要的预算什么时候交?"),
    ("The doctor said I should sleep more and drink less coffee.", "医生有什么建议?"),
    ("律师的电话在绿色文件夹里。", "Where is the lawyer's phone number?"),
    ("周六要带孩子去动物园看大象。", "When do we go to see the elephants?"),
    ("我弟弟在部队当飞行员。", "What does my brother do in the army?"),
    ("邻居家的樱桃树长到我们院子里了。", "Whose cherry tree grows into our yard?"),
    ("数学考试不及格,要补考。", "Which exam do I have to take again?"),
    ("我把护身符送给了最好的朋友。", "Who got my amulet?"),
    ("妈妈每年秋天都腌黄瓜。", "What does mother pickle in autumn?"),
    ("剧院的票是星期日晚上的。", "For which evening are the theatre tickets?"),
)


def write_notes(workspace: Path) -> list[tuple[str, str, str]]:
    """Write the notes; returns (kind, question, the path of its note)."""
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    asked: list[tuple[str, str, str]] = []
    day = FIRST_DAY
    kinds = (("same", SAME_WORDS), ("other", OTHER_WORDS), ("short", SHORT), ("across", ACROSS))
    for kind, pairs in kinds:
        for note, question in pairs:
            day += timedelta(days=1)
            path = f"memory/{day}.md"
            (workspace / path).write_text(f"- {note}\n", "utf-8")
            asked.append((kind, question, path))
    return asked


async def ask(
    folder: Path, asked: list[tuple[str, str, str]], options: Mapping[str, Any]
) -> dict[str, list[float]]:
    """The reciprocal rank of every question's note, by kind and for all."""
    config = MemoryConfig.model_validate({"watch": False, "max_results": 10, **options})
    embedder = embed.make(config.embedder, folder / "index")
    index = MemoryIndex.in_folder(
        Settings(Config(memory=config)),
        FolderNotes(folder / "workspace"),
        folder / "index",
        embedder,
        system_clock,
    )
    ranks: dict[str, list[float]] = {"all": []}
    try:
        await index.sync("bench")
        for kind, question, path in asked:
            answer = await index.search(question, ["main"])
            places = [hit.path for hit in answer.hits]
            rank = 1 / (places.index(path) + 1) if path in places else 0.0
            ranks["all"].append(rank)
            ranks.setdefault(kind, []).append(rank)
    finally:
        await index.close()
        await embedder.close()
    return ranks


def main() -> int:
    """Measure and print."""
    quiet.logs()
    every = sized.every("chinese", few=5)
    print("| mode | questions | asked | R@1 | MRR |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = write_notes(folder / "workspace")[::every]
        for mode, options in MODES.items():
            for kind, ranks in asyncio.run(ask(folder, asked, options)).items():
                first = sum(rank == 1.0 for rank in ranks) / len(ranks)
                mean = sum(ranks) / len(ranks)
                print(f"| {mode} | {kind} | {len(ranks)} | {first:.3f} | {mean:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
