"""Progress of what takes long: a bar on a terminal, lines elsewhere, nothing when quiet."""

import io
import re
import threading

import pytest

from bot.cli.progress import BYTES, progress
from tests.support import Seconds


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Broken(Screen):
    def write(self, s: str, /) -> int:
        raise BrokenPipeError


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def painted(screen: io.StringIO) -> list[str]:
    """What was on the line, one look after the other."""
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())
    return [line.strip() for line in plain.split("\r")]


def test_a_bar_is_painted_over_itself_and_taken_away(clock: Seconds):
    screen = Screen()
    with progress("Restoring", total=200, unit="files", stream=screen, clock=clock) as bar:
        assert screen.getvalue() == ""  # a question may be asked before
        bar.advance(50)
        clock.now += 1
        bar.at(100)
    shown = painted(screen)
    assert re.fullmatch(r"Restoring ━+╸━+ +25%  50/200 files --:--", shown[0])
    assert re.fullmatch(r"Restoring ━+╺━+ +50% 100/200 files .*", shown[-2])
    assert shown[-1] == ""


def test_a_bar_says_how_long_the_rest_may_take_and_is_painted_now_and_then(clock: Seconds):
    screen = Screen()
    with progress("Backing up", total=4_000_000, unit=BYTES, stream=screen, clock=clock) as bar:
        for _ in range(1_000):
            clock.now += 0.03
            bar.advance(1_000)
    shown = painted(screen)
    assert 200 < len(shown) < 300
    assert shown[-2].endswith("25% 1.0/4.0 MB 01:31")


@pytest.mark.parametrize("columns", [80, 38])
def test_what_is_painted_fits_one_line(clock: Seconds, monkeypatch, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen()
    with progress("Indexing notes", total=3, unit="notes", stream=screen, clock=clock) as shown:
        shown.advance()
    assert all(len(line) <= columns for line in painted(screen))


def test_where_there_is_no_terminal_a_line_comes_every_ten_seconds(clock: Seconds):
    out = io.StringIO()
    with progress("Moving", total=100, unit="steps", stream=out, clock=clock) as bar:
        for _ in range(25):
            clock.now += 1
            bar.advance()
    assert out.getvalue().splitlines() == [
        "Moving: 10% 10/100 steps 01:30",
        "Moving: 20% 20/100 steps 01:20",
    ]


def test_a_dumb_terminal_gets_lines_too(clock: Seconds, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    with progress("Moving", unit="steps", stream=screen, clock=clock) as bar:
        clock.now += 60
        bar.advance(7)
    assert screen.getvalue().split() == ["Moving:", "7/?", "steps"]


@pytest.mark.parametrize("kind", [Screen, io.StringIO])
def test_quiet_shows_nothing(clock: Seconds, kind: type[io.StringIO]):
    screen = kind()
    with progress("Moving", total=9, quiet=True, stream=screen, clock=clock) as bar:
        clock.now += 60
        bar.advance(7)
    assert screen.getvalue() == ""


def test_lines_of_a_command_stand_above_the_bar(clock: Seconds, capsys):
    screen = Screen()
    with progress("Moving", total=9, stream=screen, clock=clock) as bar:
        bar.advance()
        bar.say("people 3 moved")
        assert painted(screen)[-1] == ""
        bar.advance()
        assert painted(screen)[-1].startswith("Moving")
    assert capsys.readouterr().out == "people 3 moved\n"


def test_of_two_bars_the_one_that_goes_on_is_shown(clock: Seconds):
    screen = Screen()
    with (
        progress("Copying", total=9, stream=screen, clock=clock) as copying,
        progress("Backing up", total=9, stream=screen, clock=clock) as bar,
    ):
        for each, words in ((copying, "Copying"), (bar, "Backing up"), (copying, "Copying")):
            each.advance()
            assert painted(screen)[-1].startswith(words)


def test_more_than_all_is_all_and_nothing_of_nothing_is_no_fault(clock: Seconds):
    screen = Screen()
    with progress("Backing up", total=10, stream=screen, clock=clock) as bar:
        bar.advance(11)
    assert "100%" in screen.getvalue()
    with progress("Backing up", total=0, unit=BYTES, stream=screen, clock=clock) as bar:
        bar.advance(0)
    assert "0/0 bytes" in screen.getvalue()


def test_nothing_is_lost_when_many_threads_say_it(clock: Seconds):
    screen = Screen()
    with progress("Packing", total=4_000, stream=screen, clock=clock) as bar:
        threads = [
            threading.Thread(target=lambda: [bar.advance() for _ in range(1_000)]) for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        clock.now += 1
        bar.advance(0)
    assert "4000/4000" in painted(screen)[-2]


def test_a_terminal_that_is_gone_does_not_end_the_work(clock: Seconds):
    with progress("Packing", total=4, stream=Broken(), clock=clock) as bar:
        bar.advance(4)
