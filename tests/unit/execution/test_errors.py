"""Errors as they are recorded: legible and storable, whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Workflow, step
from stepwell.execution.errors import describe
from stepwell.execution.suspension import CancelRequested, SkipRequested, find_suspension
from stepwell.states import RunState
from tests.unit.execution.memory import MemoryRun


class Mute(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Wrong(Exception):
    """Its text is no text."""

    def __len__(self) -> int:
        return 42

    __str__ = len  # type: ignore[assignment]


class Deadly(Exception):
    """Making its text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


def failing(error: BaseException) -> MemoryRun:
    """A run whose step raised this."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            raise error

    return MemoryRun(Order).drive()


@pytest.mark.parametrize("error", [Mute("x"), Wrong("x"), Deadly("x")])
def test_an_error_without_a_text_is_recorded_all_the_same(error: Exception) -> None:
    """A broken ``__str__`` hides neither the class of the error nor where it came from."""
    run = failing(error)

    assert run.state is RunState.FAILED
    assert str(run.error_class).endswith(type(error).__name__)
    assert "its text could not be made" in str(run.error_message)
    assert "raise error" in str(run.row("pack").traceback)


@pytest.mark.parametrize("error", [ValueError("a\x00b"), ValueError("a\ud800b")])
def test_what_databases_refuse_is_escaped(error: Exception) -> None:
    """NUL and lone surrogates are written out, in message and traceback."""
    run = failing(error)
    row = run.row("pack")

    for text in (run.error_message, row.error_message, row.traceback):
        assert text is not None
        assert "\x00" not in text
        text.encode("utf-8")
    assert run.error_message in ("a\\x00b", "a\\ud800b")


def test_a_huge_message_is_cut() -> None:
    """The beginning of a message and the end of a traceback are what one needs."""
    run = failing(ValueError("begin " + "x" * 1_000_000 + " end"))
    row = run.row("pack")

    assert len(str(run.error_message)) < 5_000
    assert str(run.error_message).startswith("begin xxx")
    assert len(str(row.traceback)) < 40_000
    assert str(row.traceback).rstrip().endswith("end")


def test_causes_are_recorded() -> None:
    """The whole chain is in the traceback."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            try:
                {}["missing"]
            except KeyError as error:
                raise ValueError("outer") from error

    row = MemoryRun(Order).drive().row("pack")

    assert "KeyError: 'missing'" in str(row.traceback)
    assert "direct cause" in str(row.traceback)
    assert row.error_message == "outer"


def test_a_group_of_errors_is_recorded_with_its_members() -> None:
    """The message is the group's, the traceback has them all."""
    run = failing(ExceptionGroup("two went wrong", [ValueError("one"), KeyError("two")]))
    row = run.row("pack")

    assert run.error_class == "ExceptionGroup"
    assert str(run.error_message).startswith("two went wrong")
    assert "ValueError: one" in str(row.traceback)
    assert "KeyError: 'two'" in str(row.traceback)


def test_an_endless_chain_is_recorded() -> None:
    """An error that is its own cause, and one with a thousand causes, do no harm."""
    own = ValueError("own")
    own.__cause__ = KeyError()
    own.__cause__.__cause__ = own
    assert failing(own).state is RunState.FAILED

    long: BaseException = ValueError("0")
    for number in range(2000):
        deeper = ValueError(str(number))
        deeper.__cause__ = long
        long = deeper
    run = failing(long)
    assert (run.state, run.error_message) == (RunState.FAILED, "1999")


def test_classes_are_told_by_their_full_name() -> None:
    """Built-in errors by their name, others with their module."""
    assert describe(ValueError()).error_class == "ValueError"
    assert describe(Mute()).error_class == f"{__name__}.Mute"


def test_a_class_with_an_endless_name_fits_its_column() -> None:
    """A name is cut, too."""
    cls = type("E" * 1000, (Exception,), {})
    assert len(describe(cls()).error_class) <= 255


@given(st.text(st.characters(exclude_categories=())))
def test_any_message_can_be_stored(text: str) -> None:
    """Whatever is in it, every database takes it."""
    record = describe(ValueError(text))
    for stored in (record.message, record.traceback):
        assert "\x00" not in stored
        stored.encode("utf-8")


def test_a_verb_is_found_in_groups_only() -> None:
    """Control flow is found directly and in groups, not in the causes of an error."""
    verb = SkipRequested()
    assert find_suspension(verb) is verb
    assert find_suspension(BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [verb])])) is verb
    error = ValueError()
    error.__cause__ = CancelRequested(None)
    assert find_suspension(error) is None
    assert find_suspension(ExceptionGroup("g", [ValueError()])) is None
