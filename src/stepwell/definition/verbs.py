"""What the body of ``run()`` can say: steps by name, waits, repetitions, and values that replay alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, ParamSpec, TypeVar, Unpack
from uuid import UUID

from stepwell.definition import checks
from stepwell.definition.durable import durable, durable_one_off
from stepwell.definition.functions import is_async, is_generator
from stepwell.definition.options import broken_policies
from stepwell.definition.repeats import RepeatOptions, repetition_of
from stepwell.definition.runtime import Runtime, current
from stepwell.definition.steps import BoundStep
from stepwell.definition.unset import UNSET, Unset
from stepwell.definition.waits import Poll, Signal, broken_poll, broken_signal
from stepwell.errors import RunError
from stepwell.policies import Policy

if TYPE_CHECKING:
    from stepwell.definition.program import Program

__all__ = ["Verbs"]

_MOMENT: Final = timedelta(seconds=1)
P = ParamSpec("P")
T = TypeVar("T")
_EVERY = timedelta(minutes=1)


class Verbs:
    """The durable verbs of ``run()``.

    Each is journaled when it is over, and a replay passes it with what is recorded. Calls of one verb with the same
    name are told apart by their number, so the order of such calls is part of the code's history.

    Called in a step, or in a class without ``run()``, they raise ``RunError``. An ``AsyncWorkflow`` awaits them.
    """

    _runtime: Runtime | None = None
    _is_async: ClassVar[bool] = False

    # steps and other workflows

    @durable_one_off
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function as a step of this name, once, and answer its result; for what is no method.

        Args:
            name: The step's name in the journal.
            function: A function or a method; it gets all other arguments. The class's ``policies`` apply to it.
            *args: For the function.
            **kwargs: For the function.

        Durability:
            As for a ``@step`` of the class.

        Raises:
            StepFailed: No policy absorbed its error.
        """
        _refuse(checks.broken_name(name), "step(): a step's name")
        if isinstance(function, BoundStep):
            raise TypeError(f"{function.name!r} is a step already: call it, self.{function.name}(...)")
        if not callable(function):
            raise TypeError(f"step() takes a name and a function; got {function!r}")
        answer: T = self._program("step()").call_function(name, function, args, kwargs)
        return answer

    @durable
    def call(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a run of another workflow, wait until it is over, and answer its result.

        The run waits as one row, without a thread. If it is canceled meanwhile, so is the child; if it is paused, the
        child goes on.

        Args:
            workflow: A class, declared or with ``run()``, or what its ``with_options(...)`` answered; there
                ``session``, ``connection`` and ``engine`` have no meaning.
            *args: What the class's ``start`` takes.
            **kwargs: The same, by name.

        Returns:
            The child's result. Where it was started over, that of the last one in the chain.

        Durability:
            The child is started in the transaction in which the run parks for it: exactly once, or not at all. With
            ``on_conflict="skip"`` a run that is there already is waited for; as nobody tells when that one ends, it is
            looked at every 30 seconds.

        Raises:
            ChildFailed: The child has failed or was canceled; journaled, so that it is raised at each replay alike,
                also when somebody resumes the child afterwards.
            StepFailed: It could not be started, such as for ``RunAlreadyExists``, and no policy of the class absorbed
                that.
            WrongArguments: The arguments are not those of the class.
        """
        return self._program("call()").call(workflow, args, kwargs)

    def start_over(self, *, context: Mapping[str, Any] | Unset = UNSET, **args: Any) -> NoReturn:
        """End this run as completed and have another one go on in its place; this does not return.

        For workflows without an end: each wake of a run replays its journal, so one that goes round for years begins a
        new journal from time to time. The successor has the same identity, hero, parent, queue and priority, and what
        is unread in the mailbox. ``run.result()`` of this run answers the result of the last one in the chain.

        Args:
            context: What the successor's context begins with; as it is now, by default.
            **args: The arguments for its ``run()``; those that are left out have their defaults.

        Durability:
            The end of this run, the start of the other one and what it takes over are one transaction. What somebody
            asks of the run meanwhile, to pause or to cancel it, comes first.

        Raises:
            WrongArguments: The arguments are not those of ``run()``.
            Unstorable: An argument or a value of the context cannot be stored.
        """
        self._program("start_over()").start_over(args, context)

    # time

    @durable
    def sleep(self, duration: timedelta, *, name: str | None = None) -> None:
        """Wait for a while; the run costs a row meanwhile, and no thread.

        Args:
            duration: A ``timedelta`` from the moment at which the call is first reached.
            name: Its name in the journal.

        Durability:
            The instant is journaled when the call is first reached, and stays.
        """
        _refuse(checks.broken_duration(duration, zero=True), "sleep(): duration")
        _refuse_name(name, "sleep()")
        self._program("sleep()").sleep(duration, None, name)

    @durable
    def sleep_until(
        self, instant: datetime | Callable[[], datetime] | str, *, name: str | None = None
    ) -> None:
        """Wait for an instant; one that has passed is no wait.

        Args:
            instant: An aware ``datetime``, which is fixed when first reached; or a method, its name or a function
                that answers one, which is asked again whenever the run wakes, so that a moved appointment moves the
                wait.
            name: Its name in the journal.
        """
        if isinstance(instant, datetime):
            _refuse(checks.broken_instant(instant), "sleep_until(): instant")
        elif not isinstance(instant, str) and not callable(instant):
            raise TypeError(f"sleep_until() takes an aware datetime, a method or its name; got {instant!r}")
        _refuse_name(name, "sleep_until()")
        self._program("sleep_until()").sleep(None, instant, name)

    # conditions

    @durable
    def wait_until(
        self,
        condition: Callable[..., object] | str,
        *,
        timeout: timedelta | None = None,
        every: timedelta = _EVERY,
        default: Any = UNSET,
        name: str | None = None,
        on_exception: Policy | Sequence[Policy] = (),
    ) -> Any:
        """Wait until a condition holds, which is looked at now and then again and again.

        Args:
            condition: A method, its name or a function; a true answer ends the wait. It may read ``self.hero`` and
                ``self.session``, and must not write.
            timeout: How long to wait, from the first look; None waits for ever, zero and less only looks.
            every: How long after one look comes the next; the last one falls on the timeout.
            default: The answer if time ran out. Not given, that raises.
            name: Its name in the journal; the condition's own by default.
            on_exception: Policies for what the condition raises, ahead of the class's. The class's blanket ones do not
                apply: a broken condition should not be retried for ever.

        Returns:
            True, or ``default``.

        Raises:
            WaitTimedOut: Time ran out; journaled, so that it is raised at each replay alike.
            StepFailed: The condition raised, and no policy absorbed it.
        """
        poll = Poll(condition, every, _no_less_than_none(timeout), default)
        limit = _MOMENT if poll.timeout == timedelta() else poll.timeout
        _refuse(broken_poll(replace(poll, timeout=limit)), "wait_until():")
        _refuse_condition(condition, "wait_until()")
        _refuse_name(name, "wait_until()")
        return self._program("wait_until()").wait_until(poll, name, {"on_exception": _policies(on_exception)})

    @durable
    def continue_if(
        self,
        condition: Callable[..., object] | str,
        *,
        name: str | None = None,
        on_exception: Policy | Sequence[Policy] = (),
    ) -> None:
        """Wait until a condition holds, which is looked at now and whenever somebody calls ``run.wake()``.

        Args:
            condition: As for :meth:`wait_until`.
            name: Its name in the journal; the condition's own by default.
            on_exception: As for :meth:`wait_until`.

        Raises:
            StepFailed: The condition raised, and no policy absorbed it.
        """
        _refuse_condition(condition, "continue_if()")
        _refuse_name(name, "continue_if()")
        self._program("continue_if()").continue_if(condition, name, {"on_exception": _policies(on_exception)})

    # repetitions

    @durable
    def repeat(
        self,
        fn: Callable[..., object],
        *,
        every: timedelta | str,
        until: Callable[..., object] | str | None = None,
        **options: Unpack[RepeatOptions],
    ) -> int:
        """Call something again and again; between two ticks the run costs a row, and no thread.

        Ticks lie on a grid of instants that hangs on when they are scheduled: one that is run late delays no other.

        Args:
            fn: A ``@step`` method, whose options and policies apply to each tick; an ordinary method or a function, to
                which the class's ``policies`` apply. A parameter without a default gets the tick's scheduled instant,
                in ``timezone``.
            every: A ``timedelta`` of real time: ``timedelta(days=1)`` is 24 hours. Or wall time: ``"day"``, ``"week"``,
                ``"month"`` or a weekday (``"monday"``), or a cron expression (``"0 9 * * mon-fri"``; six fields begin
                with the second).
            until: A method, its name or a function; a true answer ends the repetition. It is asked at first, after each
                tick, and again when the next one is due. It may read ``self.hero`` and ``self.session``, and must not
                write. None: a tick that says ``self.finish()``, or a person, ends it.
            **options: ``start_at``, an aware ``datetime``: the first tick; of a weekday or cron, not before it.
                By default it comes one interval after the call was first reached.
                ``timeout``, a ``timedelta``: a tick that is later has expired, and all that have are left out in one
                row. By default a tick expires when the next one is due: after an outage, one is made up for.
                ``on_error``, when a tick has failed for good: ``"continue"``, the default, or ``"fail"``, which raises.
                ``timezone``, the IANA name of the zone of wall time; UTC by default. A time of day that is left out as
                clocks are put forward comes in the first minute after the gap, one that comes twice counts the first
                time only; but a cron expression whose minute or hour begins with ``*`` counts real time there. The 31st
                is the last day of a shorter month, and the 31st again after it.
                ``name``, its name in the journal; the function's own by default.

        Returns:
            How many ticks have succeeded: those that were skipped, failed for good or expired do not count.

        Durability:
            The next tick is announced in the transaction that records the end of the last one, with what it wrote
            through ``self.session``: a crash loses no tick and does none twice. Each tick has its own attempts and its
            own ``self.idempotency_key``. A replay looks at the last row only: those of earlier ticks may be deleted.

        Raises:
            StepFailed: A tick failed for good and ``on_error`` is ``"fail"``, or ``until`` raised and no policy
                absorbed it. Journaled, so that it is raised at each replay alike.
            TypeError: A value does not fit.

        Example:
            >>> from stepwell import Workflow, step
            >>> class Dunning(Workflow):
            ...     def run(self):
            ...         return self.repeat(self.remind, every=timedelta(days=3), until=lambda: "paid" in self.context)
            ...
            ...     @step
            ...     def remind(self, at): ...
        """
        if not callable(fn):
            raise TypeError(f"repeat() takes a step, a method or a function; got {fn!r}")
        given: dict[str, Any] = dict(options)
        if unknown := given.keys() - RepeatOptions.__annotations__.keys():
            known = ", ".join(["every", "until", *RepeatOptions.__annotations__])
            raise TypeError(f"repeat() has no option {min(unknown)!r}; it has {known}")
        name = given.pop("name", getattr(fn, "__name__", "repeat").strip("<>"))
        _refuse(checks.broken_name(name), "repeat(): name")
        try:
            repetition = repetition_of(fn, every, until, **given)
        except TypeError as error:
            raise TypeError(f"repeat(): {error}") from error
        spec = fn.spec if isinstance(fn, BoundStep) else None
        done: int = self._program("repeat()").repeat(spec, name, fn, repetition)
        return done

    # signals

    @durable
    def wait_for_signal(
        self,
        name: str,
        *,
        timeout: timedelta | None = None,
        deadline: datetime | None = None,
        default: Any = UNSET,
    ) -> Any:
        """Wait until somebody sends the run a signal of this name, and answer its payload.

        Signals of one name are read in the order in which they came; one that came before the run waits for it is kept
        and counts.

        Args:
            name: The signal's name.
            timeout: How long to wait, from when the call is first reached; None waits for ever, zero and less only
                looks into the mailbox.
            deadline: The same as an aware instant; excludes ``timeout``.
            default: The answer if nothing came in time. Not given, that raises.

        Durability:
            The signal is marked as read in the transaction that records its payload.

        Raises:
            WaitTimedOut: Nothing came in time; journaled, so that it is raised at each replay alike.
        """
        if timeout is not None and deadline is not None:
            raise TypeError("wait_for_signal(): timeout and deadline exclude each other; give one of them")
        if deadline is not None:
            _refuse(checks.broken_instant(deadline), "wait_for_signal(): deadline")
        timeout = _no_less_than_none(timeout)
        limit = _MOMENT if deadline is not None or timeout == timedelta() else timeout
        _refuse(broken_signal(Signal(name, limit, default)), "wait_for_signal():")
        return self._program("wait_for_signal()").wait_for_signal(Signal(name, timeout, default), deadline)

    # values that replay alike

    @property
    def now(self) -> datetime:
        """The time, for decisions in ``run()``: the instant at which the last durable call ended, or the run's start.

        It is the same at each replay; ``datetime.now()`` is not. It stands still between two durable calls.
        """
        return self._program("now").now

    @property
    def random(self) -> random.Random:
        """A generator of random numbers for decisions in ``run()``: a replay draws the same ones again."""
        return self._program("random").random

    def uuid4(self) -> UUID:
        """A random UUID, the same at each replay."""
        return self._program("uuid4()").uuid4()

    # who runs

    def _durable(self, what: str, work: Callable[[], Any]) -> Any:
        """Do it, or answer what does it once it is awaited, where it is a coroutine that calls."""
        return work() if self._runtime is None else self._runtime.durable(what, work)

    def _program(self, verb: str) -> Program:
        return self._active(verb).program(verb)

    def _driven(self, what: str) -> Runtime:
        if self._runtime is None:
            raise RunError(
                f"{what} exists only while a run is driven; this {type(self).__name__} was made by hand."
            )
        return self._runtime

    def _active(self, verb: str) -> Runtime:
        """The runtime, if it is this thread or task that drives the run: verbs stop who calls them."""
        runtime = self._driven(verb)
        if current.get() is not runtime:
            raise RunError(
                f"{verb} of {type(self).__name__} was called where no step of this run is active, such as "
                "another thread. Call it in the step itself."
            )
        return runtime


def _no_less_than_none(timeout: timedelta | None) -> timedelta | None:
    """What is left of a time that ``run()`` has computed: of one that is over already, nothing."""
    return max(timeout, timedelta()) if isinstance(timeout, timedelta) else timeout


def _refuse(problem: str | None, what: str) -> None:
    if problem is not None:
        raise TypeError(f"{what} {problem}")


def _refuse_name(name: str | None, verb: str) -> None:
    if name is not None:
        _refuse(checks.broken_name(name), f"{verb}: name")


def _refuse_condition(condition: object, verb: str) -> None:
    if isinstance(condition, BoundStep):
        raise TypeError(
            f"{verb} looks at its condition again and again, and {condition.name!r} is a step, which happens once: "
            "give a plain method, without @step"
        )
    if isinstance(condition, datetime) and verb.startswith("wait_until"):
        raise TypeError(f"{verb} takes a condition; for an instant write self.sleep_until(...)")
    if not callable(condition) and not isinstance(condition, str):
        raise TypeError(f"{verb} takes a method, its name or a function; got {condition!r}")
    if callable(condition) and (is_async(condition) or is_generator(condition)):
        raise TypeError(
            f"{verb}: the condition is async or a generator function, whose answer would always count as true. Use a "
            "plain function, and do what takes waiting in a step before it"
        )


def _policies(given: Policy | Sequence[Policy]) -> tuple[Policy, ...]:
    policies = (given,) if isinstance(given, Policy) else tuple(given)
    _refuse(broken_policies(policies), "on_exception")
    return policies
