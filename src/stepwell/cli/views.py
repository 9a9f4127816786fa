"""How watched runs are shown: painted anew on a terminal, line by line elsewhere, as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol
from uuid import UUID

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from stepwell.cli.documents import instant, stored
from stepwell.cli.notes import error_of, kind_of, request_of, short_cursor
from stepwell.cli.progress import progress_text
from stepwell.cli.terminal import say, say_json_line
from stepwell.cli.watching import MOST, Look, Sight
from stepwell.cli.words import exact, span
from stepwell.states import ExecutionState, RunState
from stepwell.texts import printable

__all__ = ["JSONView", "LineView", "LiveView", "View", "open_view"]

_BAR: Final = 20
_STYLES: Final = {
    RunState.RUNNING.value: "cyan",
    RunState.COMPLETED.value: "green",
    RunState.PAUSED.value: "yellow",
    RunState.FAILED.value: "bold red",
    RunState.CANCELED.value: "red",
}
_NONE: Final = "No run is running."


class View(Protocol):
    """Where looks are shown."""

    def show(self, look: Look) -> None:
        """Show where the runs stand now."""
        ...

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_view(*, as_json: bool) -> View:
    """The view that fits standard output."""
    if as_json:
        return JSONView()
    console = Console(highlight=False, markup=False, emoji=False)
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else LineView()


class LiveView:
    """All runs in a picture that is painted anew with each look, and stays at the end.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def show(self, look: Look) -> None:
        self._live.update(self.picture(look), refresh=True)

    def picture(self, look: Look) -> Group:
        """What is painted: a line for each run, and one below it that says more."""
        lines: list[Text] = []
        # Without names it is about what runs; what has just stopped is no longer.
        shown = [sight for sight in look.sights if look.are_named or sight.run.state == RunState.RUNNING]
        for sight in shown:
            lines.append(_headline(sight))
            more = self._more(sight, look)
            if more.plain:
                lines.append(Text("  ").append_text(more))
        if not shown:
            lines.append(Text(_NONE))
        if len(shown) == MOST and not look.are_named:
            lines.append(Text(f"These are the oldest {MOST}."))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)

    def _more(self, sight: Sight, look: Look) -> Text:
        said = Text(printable(_details(sight, look)))
        share = None if sight.progress is None else sight.progress.share
        return said if share is None else Text("  ").join((self._bar(share), said))

    def _bar(self, share: float) -> Text:
        """Full only when nothing is left."""
        full, rest = ("#", "-") if self._console.options.ascii_only else ("━", "─")
        cells = int(share * _BAR)
        return Text().append(full * cells, style="green").append(rest * (_BAR - cells), style="dim")

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class _Changes:
    """Lets through what has changed since it was last shown."""

    def __init__(self) -> None:
        self._shown: dict[UUID, tuple[object, ...]] = {}

    def of(self, look: Look) -> Iterator[Sight]:
        known, self._shown = self._shown, {sight.run.id: sight.mark for sight in look.sights}
        for sight in look.sights:
            if known.get(sight.run.id) != sight.mark:
                yield sight


class LineView:
    """A line for each change, with the time in UTC: for logs and pipes."""

    def __init__(self) -> None:
        self._changes = _Changes()
        self._is_first = True

    def show(self, look: Look) -> None:
        for sight in self._changes.of(look):
            more = printable(_details(sight, look))
            line = f"{look.at:%H:%M:%S}  {_headline(sight).plain}"
            say(f"{line}: {more}" if more else line)
        if self._is_first and not look.sights:
            say(f"{look.at:%H:%M:%S}  {_NONE}")
        self._is_first = False

    def __enter__(self) -> LineView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class JSONView:
    """A JSON document in a line of its own for each change."""

    def __init__(self) -> None:
        self._changes = _Changes()

    def show(self, look: Look) -> None:
        for sight in self._changes.of(look):
            say_json_line({"at": instant(look.at), **_document(sight)})

    def __enter__(self) -> JSONView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def _document(sight: Sight) -> dict[str, Any]:
    run, entry, progress, pace = sight.run, sight.entry, sight.progress, sight.pace
    told: dict[str, Any] | None = None
    if progress is not None:
        remaining = None if pace is None or pace.remaining is None else pace.remaining.total_seconds()
        told = {
            "done": progress.done,
            "total": progress.total,
            "rate": None if pace is None or pace.rate is None else round(pace.rate, 3),
            "remaining_seconds": None if remaining is None else round(remaining, 1),
        }
    return {
        "run": str(run.id),
        "workflow": run.workflow,
        "state": run.state,
        "reason": run.reason,
        "current_step": run.current_step,
        "attempt": None if entry is None else entry.attempt,
        "progress": told,
        "cursor": None if entry is None or entry.cursor is None else stored(entry.cursor),
        "wake_at": None if run.wake_at is None else instant(run.wake_at),
        "error_class": run.error_class,
        "error_message": run.error_message,
    }


def _headline(sight: Sight) -> Text:
    run = sight.run
    where = f" at {run.current_step}" if run.current_step else ""
    line = Text(f"{run.id}  ").append(f"{run.state:<9}", style=_STYLES.get(run.state, ""))
    return line.append(f"  {printable(run.workflow)}{printable(where)}")


def _details(sight: Sight, look: Look) -> str:
    """What else there is to say about where it stands."""
    run, entry = sight.run, sight.entry
    match run.state:
        case RunState.COMPLETED:
            return f"took {exact(_taken(sight))}"
        case RunState.CANCELED | RunState.PAUSED:
            return run.reason or ""
        case RunState.FAILED:
            return error_of(run) or run.reason or ""
        case RunState.READY:
            return ", ".join(part for part in (f"in queue {run.queue}", run.reason) if part)
        case RunState.RUNNING:
            return ", ".join(part for part in _body(sight, look) if part)
    waits = None if entry is None or entry.state != ExecutionState.SCHEDULED else kind_of(entry)
    return waits or run.reason or ""


def _body(sight: Sight, look: Look) -> Iterator[str]:
    entry = sight.entry
    if entry is not None and entry.state == ExecutionState.IN_PROGRESS:
        yield short_cursor(entry) if sight.progress is None else progress_text(sight.progress, sight.pace)
        if entry.attempt > 1:
            yield f"attempt {entry.attempt}"
        if sight.progress is None and entry.started_at is not None:
            yield f"for {span(look.at - entry.started_at)}"
    expires_at = sight.run.lease_expires_at
    if expires_at is not None and expires_at < look.at:
        yield "its lease has run out"
    request = request_of(sight.run, look.at)
    if request is not None:
        yield f"asked {request}"


def _taken(sight: Sight) -> timedelta:
    run = sight.run
    return (run.finished_at or run.changed_at) - (run.started_at or run.created_at)
