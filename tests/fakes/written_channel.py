"""The channel that docs/writing-a-channel.md shows, taken out of the document itself."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from bot.channel import ChannelPlugin

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "writing-a-channel.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def source() -> str:
    """The one block of the document that is a whole channel."""
    blocks = BLOCK.findall(DOCUMENT.read_text("utf-8"))
    (found,) = (code for code in blocks if "\nplugin = " in code)
    return found


def write(folder: Path) -> Path:
    """The block as a module of its own."""
    path = folder / "mailbox_channel.py"
    path.write_text(source(), "utf-8")
    return path


def plugin(folder: Path) -> ChannelPlugin:
    """What the module's entry point would name."""
    spec = importlib.util.spec_from_file_location("mailbox_channel", write(folder))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.plugin, ChannelPlugin)
    return module.plugin
