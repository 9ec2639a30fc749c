"""Commands as somebody types them who writes Chinese, through the whole engine."""

from __future__ import annotations

from pathlib import Path

from tests.support import Engine, running


async def typed(engine: Engine, text: str) -> str:
    return await engine.ask(text, locale="zh-CN")


async def test_names_choices_and_slashes_may_be_chinese(tmp_path: Path):
    async with running(tmp_path) as engine:
        assert "此外我还懂" in await typed(engine, "/帮助")
        assert "此外我还懂" in await typed(engine, "／help")
        assert "不再提醒你" in await typed(engine, "/notices 关")
        assert "我会提醒你" in await typed(engine, "/notices 打开")
        assert "写明用量" in await typed(engine, "/usage 开")
        assert "不再写明" in await typed(engine, "/usage 关闭")
        assert "模型：" in await typed(engine, "/状态")


async def test_reminders_are_set_listed_and_cancelled(tmp_path: Path):
    async with running(tmp_path) as engine:
        assert "提醒你：开会" in await typed(engine, "/提醒 两小时后开会")
        listed = await typed(engine, "/提醒列表")
        assert "1. 周六 2026-11-21 14:00 (UTC)：开会" in listed
        assert "/reminders 取消 1" in listed
        assert "已取消：开会" in await typed(engine, "/reminders 取消1")


async def test_words_that_begin_with_a_slash_are_no_command(tmp_path: Path):
    async with running(tmp_path) as engine:
        assert await typed(engine, "/吃饭了吗") == "You said: /吃饭了吗"
