"""How far the estimate of tokens is off: `python -m bench tokens`.

English, Chinese and code are this project's own texts, cut into passages of the size of a short
message. What a service would report is what tiktoken counts with `o200k_base`, if its ranks are on
this machine; they are not downloaded. A calibration learns from every other passage, as from
requests in a row, and is measured on those between: once from passages of that kind alone, once
from all kinds mixed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from bench.bots import ROOT
from bench.chinese import OTHER_WORDS, SAME_WORDS
from bot.context import tokens
from bot.context.tokens import Calibration

PASSAGE = 1_200  # characters, of an alphabetic script
MODEL = "any"
REPEATED = 3  # how often all that is learned from is seen: a conversation has many requests

TALK = """\
好的,我帮你整理一下下周的安排。周一上午九点半和设计团队开会,讨论新版首页的配色;下午要去医院复查,
记得带上医保卡和上次的化验单。周二没有会议,可以集中写季度总结,初稿最好在晚饭前发给林经理。周三早上的
高铁七点五十二分从南站出发,到了以后先去酒店放行李,再去客户公司做演示。演示大概四十分钟,客户比较关心
数据迁移会不会影响现有的订单系统,这一点要提前准备好说明。周四返程,晚上约了老同学吃火锅,地点还没有定。
周五如果天气好,孩子想去植物园看郁金香;如果下雨,就在家里一起烤饼干。另外,阳台的水龙头还在滴水,物业说
要等配件到货,大概需要三到五天,我会在周四再提醒你问一次。你上次提到想学法语,我找到两门适合初学者的课程,
一门每周两次、一共十二周,另一门可以自己安排时间,价格便宜一些,但是没有口语练习。要不要我把两门课的介绍
发给你比较一下?
"""


def passages(text: str) -> Iterator[str]:
    """Whole lines, together about as long as a short message."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        found.append(line)
        if tokens.weight("".join(found)) >= PASSAGE:
            yield "".join(found)
            found = []


def corpora() -> Mapping[str, list[str]]:
    """Passages of each kind."""
    chinese = "\n".join(f"{note}\n{question}" for note, question in SAME_WORDS + OTHER_WORDS)
    catalog = (ROOT / "bot/i18n/zh.toml").read_text("utf-8").splitlines()
    said = "\n".join(line.partition('"')[2].rstrip('"') for line in catalog if '"' in line)
    docs = sorted((ROOT / "docs").glob("*.md"))
    code = sorted((ROOT / "bot").rglob("*.py"))
    return {
        "English": list(passages("".join(path.read_text("utf-8") for path in docs))),
        "Chinese": list(passages(f"{TALK}{chinese}\n{said}\n")),
        "code": list(passages("".join(path.read_text("utf-8") for path in code))),
    }


def learned(texts: Sequence[str], count: tokens.TokenCounter) -> Calibration:
    """What a calibration knows after requests with these texts."""
    calibration = Calibration()
    for text in list(texts) * REPEATED:
        calibration = calibration.learn(MODEL, tokens.estimate(text), count(text))
    return calibration


def errors(texts: Sequence[str], guessed: Sequence[float], count: tokens.TokenCounter) -> str:
    """The mean error of a guess for each text, and the error of all of them together."""
    counted = [count(text) for text in texts]
    mean = statistics.mean(abs(g - c) / c for g, c in zip(guessed, counted, strict=True))
    return f"{mean:.1%} | {sum(guessed) / sum(counted) - 1:+.1%}"


def main() -> int:
    """Measure and print."""
    count = tokens.counter()
    if count.name == tokens.ESTIMATE:
        print("tiktoken's ranks are not here, so there is nothing to compare the estimate with:")
        print("set TIKTOKEN_CACHE_DIR to a folder that has them.")
        return 0
    kinds = corpora()
    rows = zip(*(texts[::2] for texts in kinds.values()), strict=False)  # as many of each
    mixed = learned([text for row in rows for text in row], count)
    print(f"| {count.name} | guess | passages | characters a token | mean error | of all |")
    print("|---|---|---:|---:|---:|---:|")
    for kind, texts in kinds.items():
        own, asked = learned(texts[::2], count), texts[1::2]
        estimates = [tokens.estimate(text) for text in asked]
        guesses: Mapping[str, list[float]] = {
            "length ÷ 4": [len(text) / 4 for text in asked],
            "estimate": [float(each) for each in estimates],
            f"× {own.factor(MODEL):.2f}, learned from {kind}": [
                each * own.factor(MODEL) for each in estimates
            ],
            f"× {mixed.factor(MODEL):.2f}, learned from all": [
                each * mixed.factor(MODEL) for each in estimates
            ],
        }
        long = "".join(texts)[: 10 * tokens.EXACT]
        share = len(long) / sum(count(text) for text in passages(f"{long}\n"))
        for name, guessed in guesses.items():
            figures = errors(asked, guessed, count)
            print(f"| {kind} | {name} | {len(asked)} | {share:.1f} | {figures} |")
    print_long(kinds, count)
    return 0


def print_long(kinds: Mapping[str, Sequence[str]], count: tokens.TokenCounter) -> None:
    """How far counting by samples is off, and how long it takes."""
    print("\n| long text | characters | error | counted in | estimated in |")
    print("|---|---:|---:|---:|---:|")
    for kind, texts in kinds.items():
        joined = "".join(texts)
        while len(joined) < 2 * tokens.EXACT:
            joined += joined
        exact = sum(
            count(joined[start : start + tokens.EXACT])
            for start in range(0, len(joined), tokens.EXACT)
        )
        error = count(joined) / exact - 1
        took, estimated = _milliseconds(count, joined), _milliseconds(tokens.estimate, joined)
        figures = f"{error:+.1%} | {took:.2f} ms | {estimated:.2f} ms"
        print(f"| {kind} | {len(joined)} | {figures} |")


def _milliseconds(count: tokens.Count, text: str) -> float:
    def once() -> float:
        started = time.perf_counter()
        count(text)
        return (time.perf_counter() - started) * 1000

    return min(once() for _ in range(5))


if __name__ == "__main__":
    sys.exit(main())
