"""Hooks of a class: when they are called, and what they can and cannot change."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Cancel, Pause, Retry, RunError, Signal, Skip, Workflow, resumable_step, step
from stepwell.states import RunState
from tests.unit.execution.memory import Hero, MemoryRun

AT_ONCE = timedelta()
HOUR = timedelta(hours=1)


class Watched(Workflow[Any]):
    """Notes what it is told."""

    hero_optional = True
    told: list[Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.told = []

    def before_step(self, step: str) -> None:
        self.told.append(("before", step))

    def after_step(self, step: str, outcome: str) -> None:
        self.told.append(("after", step, outcome))

    @contextmanager
    def _around(self, step: str) -> Iterator[None]:
        self.told.append(("enter", step))
        try:
            yield
        finally:
            self.told.append(("leave", step))

    def around_step(self, step: str) -> AbstractContextManager[object]:
        return self._around(step)

    def on_finish(self, result: Any) -> None:
        self.told.append(("finish", result))

    def on_fail(self, error: BaseException) -> None:
        self.told.append(("fail", error))

    def on_pause(self, reason: str | None) -> None:
        self.told.append(("pause", reason))

    def on_cancel(self, reason: str | None) -> None:
        self.told.append(("cancel", reason))


def acting(act: Any, **options: Any) -> Any:
    """A watched workflow of one step."""

    class Acting(Watched):
        @step(**options)
        def act(self) -> Any:
            self.told.append("body")
            return act(self)

    return Acting


def fail(self: Any) -> None:
    raise ConnectionError("down")


# -- the order -----------------------------------------------------------------------------------------------------


def test_hooks_are_called_in_their_order() -> None:
    """Around the body, then after it, and the end of the run when everything is durable."""
    cls = acting(lambda self: self.finish("all"))
    MemoryRun(cls).drive()
    assert cls.told == [
        ("before", "act"),
        ("enter", "act"),
        "body",
        ("leave", "act"),
        ("after", "act", "success"),
        ("finish", "all"),
    ]


def test_after_a_success_is_before_it_is_durable() -> None:
    """What it writes is committed with the step."""

    class Writing(Watched):
        @step
        def act(self) -> None: ...

        def after_step(self, step: str, outcome: str) -> None:
            self.session.append("after")
            self.context["after"] = outcome

    run = MemoryRun(Writing).drive()

    assert (run.ledger, run.memory) == (["after"], {"after": "success"})


@pytest.mark.parametrize(
    ("act", "options", "outcomes"),
    [
        (fail, {"on_exception": Retry(attempts=2, wait=AT_ONCE)}, ["retried", "failed"]),
        (fail, {"on_exception": Skip()}, ["skipped"]),
        (fail, {"on_exception": Cancel()}, ["canceled"]),
        (fail, {"on_exception": Pause()}, ["paused"]),
        (lambda self: self.skip(), {}, ["skipped"]),
        (lambda self: self.pause(), {}, ["paused"]),
        (lambda self: self.cancel(), {}, ["canceled"]),
        (lambda self: self.pause(done=True), {}, ["success"]),
    ],
)
def test_each_attempt_is_told_with_its_outcome(act: Any, options: Any, outcomes: list[str]) -> None:
    """Once, whatever came of it, and when it is journaled."""
    cls = acting(act, **options)
    MemoryRun(cls).drive()

    assert [told[2] for told in cls.told if told[0] == "after"] == outcomes


def test_each_execution_of_a_resumable_step_is_an_attempt() -> None:
    """``continued`` is an outcome."""

    class Steps(Watched):
        @resumable_step(max_iterations=1)
        def walk(self) -> None:
            for _ in self.cursor.iterate(range(2)):
                pass

    MemoryRun(Steps).drive()

    assert [told[2] for told in Steps.told if told[0] == "after"] == ["continued", "success"]


def test_a_body_that_never_begins_is_told_to_nobody() -> None:
    """A step that a condition left out, or whose wait ran out, had no attempt at its body."""

    class Steps(Watched):
        @step(skip_if=True)
        def left_out(self) -> None: ...

        @step(awaits=Signal("go", timeout=HOUR), on_exception=Skip())
        def waiting(self) -> None: ...

        @step
        def done(self) -> None: ...

    run = MemoryRun(Steps)
    run.activate()
    run.wake()
    run.drive()

    assert run.story == ["left_out skipped", "waiting skipped", "done success"]
    assert {told[1] for told in Steps.told if told[0] in ("before", "after")} == {"done"}


def test_the_end_is_told_once() -> None:
    """With what it ended by: an error, a reason, a result."""
    failing, pausing, canceling = (
        acting(fail),
        acting(lambda self: self.pause("why")),
        acting(lambda self: self.cancel("no")),
    )
    for cls in (failing, pausing, canceling):
        MemoryRun(cls).drive()

    kind, error = failing.told[-1]
    assert (kind, repr(error)) == ("fail", "ConnectionError('down')")
    assert pausing.told[-1] == ("pause", "why")
    assert canceling.told[-1] == ("cancel", "no")


def test_a_park_is_no_end() -> None:
    """A run that waits is told to nobody."""

    class Later(Watched):
        @step(wait=HOUR)
        def act(self) -> None: ...

    run = MemoryRun(Later)
    run.activate()

    assert Later.told == []


def test_a_request_from_outside_is_told_when_it_is_honoured() -> None:
    """By the worker that drives the run."""
    cls = acting(lambda self: run.pause("lunch") or None)

    class Two(cls):  # type: ignore[misc, valid-type]
        @step
        def more(self) -> None: ...

    run = MemoryRun(Two)
    run.drive()

    assert Two.told[-1] == ("pause", "lunch")


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["before_step", "around_step", "after_step"])
def test_a_hook_of_the_attempt_that_raises_is_an_error_of_the_step(hook: str) -> None:
    """Its policies decide, and nothing is stranded; what the body wrote is undone."""
    failures = iter([ConnectionError(hook)])

    class Broken(Workflow[None]):
        @step(on_exception=Retry(ConnectionError, wait=AT_ONCE))
        def act(self) -> None:
            self.session.append("body")

    def broken(self: Any, *arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return nullcontext() if hook == "around_step" else None

    cls = type("Cls", (Broken,), {hook: broken})
    run = MemoryRun(cls).drive()

    assert run.state is RunState.COMPLETED
    assert run.story == ["act retried", "act success"]
    assert run.ledger == ["body"]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_hook_that_is_told_changes_nothing(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is logged with the run: that one stands as it is."""

    class Broken(Workflow[None]):
        @step(on_exception=Skip())
        def act(self) -> None:
            raise ConnectionError

        def after_step(self, step: str, outcome: str) -> None:
            raise error

        def on_finish(self, result: Any) -> None:
            raise error

    with caplog.at_level(logging.ERROR):
        run = MemoryRun(Broken).drive()

    assert run.state is RunState.COMPLETED
    assert [record.hook for record in caplog.records] == ["after_step", "on_finish"]  # type: ignore[attr-defined]


def test_around_step_must_answer_a_context_manager() -> None:
    """A method that forgets it is an error that says what to write."""

    class Forgetful(Workflow[None]):
        @step
        def act(self) -> None: ...

        def around_step(self, step: str) -> Any:
            return None

    run = MemoryRun(Forgetful).drive()

    assert run.error_message is not None
    assert "around_step('act') must answer a context manager; got None" in run.error_message


def test_around_step_sees_what_the_body_raises() -> None:
    """Verbs too, as what passes through; it may replace an error by another one."""
    seen: list[Any] = []

    class Around(Workflow[None]):
        @step(on_exception=Skip(KeyError))
        def first(self) -> None:
            raise ConnectionError

        @step
        def second(self) -> None:
            self.skip()

        @contextmanager
        def _around(self) -> Iterator[None]:
            try:
                yield
            except ConnectionError as error:
                raise KeyError("translated") from error
            except BaseException as error:
                seen.append(type(error).__name__)
                raise

        def around_step(self, step: str) -> AbstractContextManager[object]:
            return self._around()

    run = MemoryRun(Around).drive()

    assert run.story == ["first skipped", "second skipped"]
    assert seen == ["SkipRequested"]


def test_a_verb_that_around_step_swallows_stands() -> None:
    """As one that a bare except in the body swallows."""

    class Around(Workflow[None]):
        @step
        def act(self) -> None:
            self.pause("look")

        def around_step(self, step: str) -> AbstractContextManager[object]:
            return suppress(BaseException)

    assert MemoryRun(Around).drive().is_over_as(RunState.PAUSED, "look")


@pytest.mark.parametrize("hook", ["before_step", "after_step"])
@pytest.mark.parametrize("verb", ["skip", "pause", "cancel"])
def test_hooks_of_the_attempt_may_say_verbs(hook: str, verb: str) -> None:
    """They are part of it."""

    class Saying(Workflow[None]):
        @step
        def act(self) -> None: ...

    cls = type("Cls", (Saying,), {hook: lambda self, *arguments: getattr(self, verb)()})
    run = MemoryRun(cls).drive()

    assert run.story == [{"skip": "act skipped", "pause": "act paused", "cancel": "act canceled"}[verb]]


# -- what they can do ----------------------------------------------------------------------------------------------


class Telling(Workflow[Any]):
    """Does something when it is told that the step was skipped, and at the end."""

    hero_optional = True
    caught: list[Any] = []

    @step(on_exception=Skip())
    def act(self) -> None:
        raise ConnectionError

    def do(self) -> None:
        raise NotImplementedError

    def after_step(self, step: str, outcome: str) -> None:
        if outcome != "success":
            self._try()

    def on_finish(self, result: Any) -> None:
        self._try()

    def _try(self) -> None:
        try:
            self.do()
        except RunError as error:
            self.caught.append(str(error))


def telling(do: Any) -> Any:
    return type("Cls", (Telling,), {"do": do, "caught": [], "__qualname__": "<locals>.Cls"})


@pytest.mark.parametrize("verb", ["pause", "cancel", "skip", "retry", "finish", "suspend"])
def test_hooks_that_are_told_say_no_verbs(verb: str) -> None:
    """It is too late: an error says so, and the run stands."""
    cls = telling(lambda self: getattr(self, verb)())
    run = MemoryRun(cls).drive()

    assert run.state is RunState.COMPLETED
    assert len(cls.caught) == 2
    assert all("too late" in message or "resumable steps only" in message for message in cls.caught)


def test_hooks_that_are_told_have_no_session() -> None:
    """Nobody would commit what they write."""
    cls = telling(lambda self: self.session)
    MemoryRun(cls).drive()

    assert len(cls.caught) == 2
    assert "open a session of your own" in cls.caught[0]


def test_hooks_that_are_told_see_the_hero() -> None:
    """To write to it, say."""
    names: list[str] = []
    cls = telling(lambda self: names.append(self.hero.name))
    MemoryRun(cls, hero=Hero("Ada")).drive()

    assert names == ["Ada", "Ada"]


def test_what_hooks_that_are_told_put_into_the_context_is_gone() -> None:
    """It does not reach the journal with the next step by chance."""

    class Two(telling(lambda self: self.context.update(told=True))):  # type: ignore[misc]
        @step
        def more(self) -> str:
            return str(dict(self.context))

    run = MemoryRun(Two).drive()

    assert run.memory == {}
    assert run.row("more").result == '"{}"'


def test_hooks_that_are_told_move_no_cursor() -> None:
    """The execution whose cursor it was is over."""
    caught: list[str] = []

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=1)
        def walk(self) -> None:
            for _ in self.cursor.iterate(range(2)):
                pass

        def after_step(self, step: str, outcome: str) -> None:
            if outcome == "continued":
                try:
                    self.cursor.set(9)
                except RunError as error:
                    caught.append(str(error))

    run = MemoryRun(Steps).drive()

    assert run.row("walk").cursor == "2"
    assert len(caught) == 1


def test_a_verb_that_after_step_swallows_stands() -> None:
    """As in a body: it belongs to the attempt, and what was decided is decided."""

    class Careless(Workflow[None]):
        @step
        def one(self) -> None: ...

        @step
        def two(self) -> None: ...

        def after_step(self, step: str, outcome: str) -> None:
            if outcome == "success":
                try:
                    self.cancel("enough")
                except BaseException:
                    return

    run = MemoryRun(Careless).drive()

    assert run.is_over_as(RunState.CANCELED, "enough")
    assert run.story == ["one canceled"]
