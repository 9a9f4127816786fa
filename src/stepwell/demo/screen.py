"""What the demo shows: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stepwell import RunState
from stepwell.demo.progress import Progress

__all__ = ["LiveScreen", "PlainScreen", "Screen", "open_screen"]

_ALWAYS_SHOWN: Final = (RunState.READY, RunState.RUNNING, RunState.WAITING, RunState.COMPLETED)
_PLAIN_SECONDS: Final = 1.0
_BAR_WIDTH: Final = 40


class Screen(Protocol):
    """Where the demo tells its story."""

    def say(self, text: str = "", style: str = "") -> None:
        """Add a line that stays."""
        ...

    def show(self, progress: Progress) -> None:
        """Show where things stand now."""
        ...

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_screen() -> Screen:
    """The screen that fits standard output."""
    console = Console(highlight=False, soft_wrap=True)
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen()


class PlainScreen:
    """One line after the other, and one a second for the progress."""

    def __init__(self) -> None:
        self._shown_at = -_PLAIN_SECONDS

    def say(self, text: str = "", style: str = "") -> None:
        # In a pipe too, each line is there when it is said.
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def show(self, progress: Progress) -> None:
        if progress.seconds - self._shown_at >= _PLAIN_SECONDS or progress.is_over:
            self._shown_at = progress.seconds
            self.say(f"  {progress.seconds:5.1f} s  {progress.share:4.0%} done   {_states_line(progress)}")

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveScreen:
    """A bar for each step, drawn anew with each look, below the lines that stay.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=10, transient=True)

    def say(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style=style))

    def show(self, progress: Progress) -> None:
        self._live.update(_picture(progress))

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def _picture(progress: Progress) -> RenderableType:
    bars = Table.grid(padding=(0, 2))
    for step, done in progress.done.items():
        bar = ProgressBar(total=progress.customers, completed=done, width=_BAR_WIDTH)
        bars.add_row(f"  {step}", bar, f"{done:>4} / {progress.customers}")
    head = Text(f"\n  {progress.seconds:5.1f} s  {progress.worker} is at work\n", style="bold")
    return Group(head, bars, Text(f"\n  runs: {_states_line(progress)}", style="dim"))


def _states_line(progress: Progress) -> str:
    """The states that belong to the story, and any other that some run is in."""
    shown = [state for state in RunState if state in _ALWAYS_SHOWN or progress.states[state]]
    return "  ".join(f"{state} {progress.states[state]:>3}" for state in shown)
