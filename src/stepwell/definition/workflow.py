"""``Workflow``: the class that authors derive from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, cast, overload
from uuid import UUID

from stepwell.definition.calls import call_of
from stepwell.definition.checks import broken_duration
from stepwell.definition.context import ContextMapping, LooseContext
from stepwell.definition.cursor import Cursor
from stepwell.definition.durable import durable_in_run
from stepwell.definition.findable import Findable
from stepwell.definition.hooks import Hooks
from stepwell.definition.launching import Launcher, LaunchOptions, launcher_of
from stepwell.definition.metaclass import WorkflowMeta
from stepwell.definition.runtime import Logger
from stepwell.definition.settings import UniqueBy, UniqueFor
from stepwell.definition.starting import Call, ConflictMode
from stepwell.definition.unset import UNSET
from stepwell.definition.verbs import Verbs
from stepwell.policies import Policy

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import TypeVar

    from stepwell.engine.run import Run

    # With a default, a class without a hero is plain `Workflow`. At run time nobody asks for the default.
    H = TypeVar("H", default=None)
else:
    from typing import TypeVar

    H = TypeVar("H")

__all__ = ["Workflow"]

T = TypeVar("T")


class Workflow(Hooks, Verbs, Findable, Generic[H], metaclass=WorkflowMeta):
    """A multi-step process that survives crashes, deploys and restarts.

    Derive from it and decorate methods with ``@step``: they run from top to bottom, each until it is done and
    recorded, with waits of seconds or months between them. ``Workflow[User]`` is about a ``User``: the *hero* of its
    runs.

    An instance belongs to one activation: between two steps it may be made anew, in another process, so what
    one step leaves for the next belongs into ``self.context``. For a unit test make one by hand; its steps
    are ordinary methods then.

    A class may override the hooks ``before_step``, ``after_step``, ``around_step``, ``on_finish``,
    ``on_fail``, ``on_pause`` and ``on_cancel``, which are called at the turning points of its runs.

    Attributes:
        workflow_name: The stable name under which runs are stored; the class's name by default. Not
            inherited. With it a class can be renamed or moved while its runs are under way.
        version: Raise it with a change that older code cannot carry on; 1 by default.
        queue: The queue of its runs; ``"default"``.
        priority: 0 is the most urgent; 100 by default.
        policies: What happens when a step raises and its own ``on_exception`` has no answer. Inherited ones
            come after the class's own.
        unique_by: What makes two runs the same: an argument's name, a tuple of names (``"hero"`` is one), or
            a function of the arguments. By default the hero, if there is one. None means that runs are never
            the same.
        identified_by: What a run is called by, in the same forms, for lists and for :meth:`find`; what ``unique_by``
            says by default. With it alone, runs of one name may be open at the same time.
        unique_for: ``"run"``: until the run is over. ``"ever"``: for good.
        on_conflict: What ``start`` does if such a run exists: ``"reject"``, ``"skip"`` or ``"replace"``.
        hero_optional: A run may start without a hero, and goes on when its hero is gone.
        max_recoveries: How often in a row a run may lose its worker before it fails; None means as the engine
            says.
        deadline: How long a run may take from its start, a ``timedelta``; None, the default, means as long
            as it likes.
        deadline_includes_waits: False leaves out of the deadline the time in which the run waits as it was
            told to: ``wait``, ``wait_until``, ``awaits`` and ``gate``. True by default.
        plan: What the class says, as values.

    Args:
        hero: The record.
        **args: What ``start`` would get.

    Durability:
        Each step that ends is recorded in one transaction, with its result, the changes of ``self.context``
        and what it wrote through ``self.session``. A step that was recorded as completed never runs again;
        one that was not does.

    Example:
        >>> from datetime import timedelta
        >>> from stepwell import Workflow, step
        >>> class Onboarding(Workflow):
        ...     @step
        ...     def greet(self):
        ...         return f"Welcome, {self.args['name']}!"
        ...
        ...     @step(wait=timedelta(days=2), skip_if=lambda self: "toured" in self.context)
        ...     def remind_of_tour(self): ...
        >>> Onboarding(name="Ada").greet()
        'Welcome, Ada!'
    """

    workflow_name: ClassVar[str]
    version: ClassVar[int] = 1
    queue: ClassVar[str] = "default"
    priority: ClassVar[int] = 100
    policies: ClassVar[Sequence[Policy]] = ()
    unique_by: ClassVar[UniqueBy] = UNSET
    identified_by: ClassVar[UniqueBy] = None
    unique_for: ClassVar[UniqueFor] = "run"
    on_conflict: ClassVar[ConflictMode] = "reject"
    hero_optional: ClassVar[bool] = False
    max_recoveries: ClassVar[int | None] = None
    deadline: ClassVar[timedelta | None] = None
    deadline_includes_waits: ClassVar[bool] = True

    _hero: H | None = None
    _args: Mapping[str, Any] = MappingProxyType({})
    _context: ContextMapping | None = None

    def __init__(self, hero: H | None = None, **args: Any) -> None:
        self._hero = hero
        self._args = MappingProxyType(args)

    # starting

    @overload
    @classmethod
    def start(cls: type[Workflow[None]], /, *args: Any, **kwargs: Any) -> Run: ...
    @overload
    @classmethod
    def start(cls: type[Workflow[H]], /, hero: H, *args: Any, **kwargs: Any) -> Run: ...
    @classmethod
    def start(cls: type[Workflow[Any]], /, *args: Any, **kwargs: Any) -> Run:
        """Start a run and return a handle on it.

        Args:
            *args: The hero, if the class has one.
            **kwargs: The workflow's own arguments, in ``self.args`` for each step. Everything else about the
            start
                goes through :meth:`with_options`.

        Durability:
            The run is inserted in a transaction of its own, which is committed when this returns; a worker
            may take it up at once, before a transaction of the caller's that is still open has committed. To
            start it if and only if that one commits, use ``with_options(session=session)``. Called in a step,
            the run is started in the step's own transaction: exactly once with the step, or not at all.

        Raises:
            WrongArguments: The arguments or the hero do not fit the class.
            RunAlreadyExists: A run of the same identity exists and ``on_conflict`` is ``"reject"``.
            Unstorable: An argument cannot be stored.
            RunError: The class is abstract.

        Example:
            >>> from stepwell import Stepwell, Workflow, step
            >>> class Greeting(Workflow):
            ...     @step
            ...     def greet(self):
            ...         print(f"Hello, {self.args['name']}!")
            >>> well = Stepwell("sqlite:///app.db")
            >>> well.migrate()
            >>> run = Greeting.start(name="Ada")
            >>> str(run.state)
            'ready'
        """
        return launcher_of(cls, {}).start(*args, **kwargs)

    @classmethod
    def start_many(cls, items: Iterable[Any]) -> list[Run]:
        """Start a run for each item, in few statements, and return their handles in the same order.

        Args:
            items: Calls made by :meth:`with_args`; or heroes, if the class has one; or mappings of arguments.

        Durability:
            All runs are inserted in one transaction: a crash leaves all of them or none.

        Raises:
            WrongArguments: An item does not fit the class.
        """
        return launcher_of(cls, {}).start_many(items)

    @overload
    @classmethod
    def with_args(cls: type[Workflow[None]], /, *args: Any, **kwargs: Any) -> Call: ...
    @overload
    @classmethod
    def with_args(cls: type[Workflow[H]], /, hero: H, *args: Any, **kwargs: Any) -> Call: ...
    @classmethod
    def with_args(cls: type[Workflow[Any]], /, *args: Any, **kwargs: Any) -> Call:
        """The arguments of one start as a value, for :meth:`start_many`; checked, and nothing is started.

        Raises:
            WrongArguments: The arguments or the hero do not fit the class.
        """
        return call_of(cls, args, kwargs)

    @classmethod
    def with_options(cls: type[Workflow[H]], **options: Unpack[LaunchOptions]) -> Launcher[H]:
        """The class with options for its next starts: a value that has ``start`` and ``start_many`` itself.

        Args:
            session: The SQLAlchemy session whose transaction the start joins: the run exists if and only if
                it commits.
            connection: The same with a connection; excludes ``session``.
            engine: The engine to start with; by default the one that drives the current run, else the
                process's default.
            key: Names the run, instead of the class's ``unique_by``: a str, int, UUID or a tuple of these.
            queue: Instead of the class's.
            priority: Instead of the class's.
            at: When the first step becomes due: an aware ``datetime``, or a ``timedelta`` from now. Now by
                default.
            on_conflict: Instead of the class's.
            same_args: With ``on_conflict="skip"``: an existing run with other arguments is no answer, so it
                raises. True by default.

        Durability:
            Nothing is recorded before ``start`` is called on the answer.

        Raises:
            WrongArguments: There is no such option, a value does not fit, or two exclude each other.

        Example:
            >>> from datetime import timedelta
            >>> from stepwell import Workflow, step
            >>> class Reminder(Workflow):
            ...     @step
            ...     def remind(self): ...
            >>> tomorrow = Reminder.with_options(key="order-7", at=timedelta(days=1))
            >>> tomorrow.options.key
            'order-7'
        """
        return launcher_of(cls, options)

    # what a step can ask

    @property
    def hero(self) -> H:
        """The record that the run is about, loaded afresh for each step."""
        hero = self._hero if self._runtime is None else self._runtime.hero
        return cast(H, hero)

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the start, by name; read-only."""
        return self._args

    @property
    def context(self) -> ContextMapping:
        """The run's small durable memory: plain JSON values, recorded with the step that changed them.

        On an instance made by hand it is an ordinary dict.
        """
        if self._runtime is not None:
            return self._runtime.context
        if self._context is None:
            self._context = LooseContext()
        return self._context

    @property
    def session(self) -> Any:
        """A SQLAlchemy session on the run's own database: what a step writes through it commits with it."""
        return self._driven("session").session

    @property
    def cursor(self) -> Cursor:
        """How far this resumable step has come; it survives crashes and restarts.

        Raises:
            RunError: This step is not resumable, or no run is active here.
        """
        return self._driven("cursor").cursor

    async def in_session(self, work: Callable[[Any], T]) -> T:
        """In an ``async def`` step: call ``work(session)`` with the step's session and answer its result.

        The session is not made for the event loop's thread, so ``work`` is an ordinary function; it runs on the thread
        that waits for the step, and the loop goes on meanwhile.

        Durability:
            What ``work`` writes commits together with the step, as with ``self.session`` in other steps.

        Raises:
            RunError: No run is active here.
        """
        result: T = await self._active("in_session()").in_session(work)
        return result

    @property
    def run_id(self) -> UUID:
        """The run's id."""
        return self._driven("run_id").run_id

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts at this step of this run, for services that do a thing once per key."""
        return self._driven("idempotency_key").idempotency_key

    @property
    def logger(self) -> Logger:
        """A logger whose records name the run, the workflow and the step."""
        if self._runtime is None:
            return logging.getLogger(f"stepwell.workflow.{type(self).workflow_name}")
        return self._runtime.logger

    @property
    def stop_requested(self) -> bool:
        """Somebody asked the run or its worker to stop: a long body should come to an end."""
        return self._runtime is not None and self._runtime.stop_requested

    # what a step can say

    @durable_in_run
    def pause(self, reason: str | None = None, *, done: bool = False) -> None:
        """Stop the run until somebody resumes it; in a step this does not return.

        In ``run()`` it is a durable call like others: it returns once the run was resumed, and is passed from then on.

        Args:
            reason: Why, for whoever looks at the run.
            done: Complete this step first. By default it is not done, and runs again after ``resume()``.

        Durability:
            Without ``done`` what the step wrote through ``self.session`` and ``self.context`` is rolled back.

        Raises:
            RunError: No run is active here.
        """
        self._active("pause()").pause(reason, done)

    def cancel(self, reason: str | None = None) -> NoReturn:
        """End the run as canceled; this does not return. What the step wrote is kept.

        Raises:
            RunError: No run is active here.
        """
        self._active("cancel()").cancel(reason)

    def skip(self) -> NoReturn:
        """Leave this step as skipped and go on with the next; this does not return.

        What the step wrote is kept.

        Raises:
            RunError: No run is active here.
        """
        self._active("skip()").skip()

    def retry(self, wait: timedelta | None = None, *, rewind: bool = False) -> NoReturn:
        """Run this step again; this does not return. What the step wrote is rolled back.

        Args:
            wait: How long to wait before it; None means not at all.
            rewind: Forget the step's cursor, and begin at its beginning.

        Raises:
            RunError: No run is active here.
            ValueError: ``wait`` is negative, or no timedelta.
        """
        self._active("retry()").retry(_checked(wait, "retry"), rewind)

    def finish(self, result: object = None) -> NoReturn:
        """End the run as completed, whatever steps are left; this does not return.

        What the step wrote is kept.

        Args:
            result: What ``run.result()`` will answer.

        Raises:
            RunError: No run is active here.
        """
        self._active("finish()").finish(result)

    def suspend(self, wait: timedelta | None = None) -> NoReturn:
        """Leave this step at its cursor and go on with it later; this does not return. What it wrote is kept.

        Args:
            wait: How long to wait; None means until the run's turn comes again.

        Raises:
            RunError: No run is active here.
            ValueError: ``wait`` is negative, or no timedelta.
        """
        self._active("suspend()").suspend(_checked(wait, "suspend"))

    def progress(self, done: int, total: int | None = None) -> None:
        """Tell how far this step has come, for whoever watches.

        Args:
            done: How many are done.
            total: How many there are; None if nobody knows.

        Raises:
            RunError: No run is active here.
        """
        self._active("progress()").progress(done, total)


def _checked(wait: timedelta | None, verb: str) -> timedelta | None:
    """Raise where the author can see it, as an error of the step, and not where the wait is computed with."""
    broken = None if wait is None else broken_duration(wait, zero=True)
    if broken:
        raise ValueError(f"{verb}(): wait {broken}")
    return wait
