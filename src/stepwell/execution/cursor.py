"""Where a resumable step stands: a small value that is committed together with what the step wrote so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol

from stepwell.definition.checks import broken_duration
from stepwell.errors import RunError
from stepwell.serialization.paths import with_article

__all__ = ["CURSOR_LIMIT", "Checkpoints", "Cursor", "Pages"]

CURSOR_LIMIT: Final = 64 * 1024
_AT_ONCE: Final = timedelta()


class Pages(Protocol):
    """Reads a query in pages by a key (see ``engine.keyset``)."""

    def rows(self, query: Any, key: Any, after: Any, size: int) -> Iterable[tuple[Any, Any]]:
        """(key, row) after the key ``after``, in the key's order."""
        ...

    def batches(self, query: Any, key: Any, after: Any, size: int) -> Iterable[tuple[Any, Sequence[Any]]]:
        """(last key, rows) after the key ``after``, in the key's order."""
        ...


class Checkpoints(Protocol):
    """Makes a cursor durable, says whether the step should stop there, and stops it."""

    def enter(self) -> None:
        """Called first by whatever moves the cursor.

        Raises:
            BaseException: What has stopped this body already: it stands, whatever the body made of it.
            RunError: This is not the thread that the step belongs to.
        """
        ...

    def write(self, text: str) -> None:
        """Commit the cursor with the step's writes and context, under the lease."""
        ...

    def should_stop(self, iterations: int) -> bool:
        """A limit of this execution is reached, or somebody asked for a stop."""
        ...

    def stop(self, wait: timedelta) -> NoReturn:
        """Leave the body; the step goes on from what was written, after ``wait``."""
        ...


class Cursor:
    """A resumable step's position, as ``self.cursor``.

    The body begins at its top each time and reads from here how far it has come. Setting the cursor is a checkpoint:
    it commits the writes so far, the context and the cursor together, and is where the step can be interrupted.

    Durability:
        Killed at any point, the step goes on from its last checkpoint: what was written after it was rolled back,
        what was written before it stays.

    Example:
        >>> class Import(Workflow):
        ...     @resumable_step(checkpoint_every=100)
        ...     def rows(self):
        ...         for line in self.cursor.iterate(read_lines(self.args["file"])):
        ...             self.session.add(Line(text=line))
    """

    def __init__(
        self,
        value: Any,
        *,
        resumed: bool,
        checkpoints: Checkpoints,
        pages: Callable[[], Pages],
        every: int,
        encode: Callable[[Any], tuple[str, Any]],
    ) -> None:
        self._value = value
        self._text: str | None = None
        self._resumed = resumed
        self._checkpoints = checkpoints
        self._pages = pages
        self._every = every
        self._encode = encode
        self._unwritten = 0
        self._iterations = 0

    def __repr__(self) -> str:
        return f"Cursor({self._value!r})"

    @property
    def value(self) -> Any:
        """The position; None at first."""
        return self._value

    @property
    def resumed(self) -> bool:
        """The step has been begun before."""
        return self._resumed

    @property
    def text(self) -> str | None:
        """The position as it is stored; None if it has not moved in this execution."""
        return self._text

    def set(self, value: object) -> None:
        """Move to ``value``, which counts as one item done; written at every ``checkpoint_every``-th.

        Raises:
            Unstorable: The value cannot be stored, or is larger than 64 KiB.
        """
        self._move(value)
        if self._is_due():
            self.checkpoint()

    def advance(self, by: int = 1) -> None:
        """Move a whole-number cursor ahead; None counts as 0.

        Raises:
            RunError: The cursor is no whole number.
        """
        now = 0 if self._value is None else self._value
        if not isinstance(now, int) or isinstance(now, bool):
            raise RunError(f"advance() needs a whole-number cursor; it stands at {now!r}. Use set().")
        self.set(now + by)

    def checkpoint(self) -> None:
        """Commit the writes so far, the context and the cursor now; the step may be interrupted here."""
        self._write()
        if self._checkpoints.should_stop(self._iterations):
            self._checkpoints.stop(_AT_ONCE)

    def skip_to(self, value: object, wait: timedelta | None = None) -> NoReturn:
        """Move to ``value``, commit, and leave the step here for ``wait``; this does not return.

        Raises:
            Unstorable: The value cannot be stored.
            ValueError: ``wait`` is negative, or no timedelta.
        """
        broken = None if wait is None else broken_duration(wait, zero=True)
        if broken:
            raise ValueError(f"skip_to(): wait {broken}")
        self._checkpoints.enter()
        self._text, self._value = self._encode(value)
        self._write()
        self._checkpoints.stop(_AT_ONCE if wait is None else wait)

    def iterate(self, source: Any, *, key: Any = None, page: int = 500) -> Iterator[Any]:
        """Go through a sequence or a SQLAlchemy ``select``, from where the cursor stands.

        Args:
            source: A sequence whose order does not change: the cursor counts its items. Or a ``select`` of one mapped
                class: it is read in pages by key, in constant memory, whatever its own order.
            key: For a ``select``: the column to go by; the primary key by default. It need not be unique: the
                primary key settles ties.
            page: How many rows of a ``select`` are read at a time.

        Yields:
            Each item. When the next one is asked for, the one before counts as done.
        """
        if hasattr(source, "whereclause"):
            yield from self._each(self._pages().rows(source, key, self._value, page))
            return
        start = self._count(source, "iterate")
        yield from self._each((index + 1, source[index]) for index in range(start, len(source)))

    def batches(self, source: Any, *, size: int = 500, key: Any = None) -> Iterator[Sequence[Any]]:
        """Like :meth:`iterate`, in lists of up to ``size`` items; each batch counts as one."""
        if hasattr(source, "whereclause"):
            yield from self._each(self._pages().batches(source, key, self._value, size))
            return
        start = self._count(source, "batches")
        if size < 1:
            raise ValueError(f"a batch has at least one item; got size={size}")
        spans = ((at, min(at + size, len(source))) for at in range(start, len(source), size))
        yield from self._each((end, source[begin:end]) for begin, end in spans)

    def _count(self, source: Any, verb: str) -> int:
        """How many items of a sequence are done."""
        if not isinstance(source, Sequence):
            raise RunError(
                f"cursor.{verb}() goes through a sequence or a select; {with_article(type(source).__name__)} "
                "cannot be entered in the middle. Make a list of it, or set the cursor by hand."
            )
        done = 0 if self._value is None else self._value
        if type(done) is not int or done < 0:
            raise RunError(
                f"cursor.{verb}() counts the items of a sequence, and the cursor stands at {done!r}: it was set "
                "by hand, or the step went through something else before."
            )
        return done

    def _each(self, items: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        """Yield items; a stop waits until there is a next one, so that no execution comes to an end with nothing."""
        must_stop = False
        for position, item in items:
            if must_stop:
                self._checkpoints.stop(_AT_ONCE)
            yield item
            self._move(position)
            if self._is_due():
                self._write()
                must_stop = self._checkpoints.should_stop(self._iterations)
        if self._unwritten:
            self._write()

    def _move(self, value: object) -> None:
        self._checkpoints.enter()
        self._text, self._value = self._encode(value)
        self._iterations += 1
        self._unwritten += 1

    def _is_due(self) -> bool:
        return self._unwritten >= self._every or self._checkpoints.should_stop(self._iterations)

    def _write(self) -> None:
        self._checkpoints.enter()
        if self._text is None:
            self._text, _ = self._encode(self._value)
        self._checkpoints.write(self._text)
        self._unwritten = 0
