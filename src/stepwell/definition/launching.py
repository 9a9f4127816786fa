"""``Workflow.with_options(...)``: the one door for what about a start is not the workflow's own business."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypedDict, TypeVar, get_args, overload

from stepwell.definition import checks
from stepwell.definition.calls import call_of, calls_of
from stepwell.definition.finding import IfMissing, wanted_of
from stepwell.definition.starting import (
    CONFLICT_MODES,
    OPTION_NAMES,
    ConflictMode,
    Starter,
    StartOptions,
    starter_for,
)
from stepwell.errors import RunNotLive, WrongArguments

if TYPE_CHECKING:
    from stepwell.engine.run import Run

__all__ = ["LaunchOptions", "Launcher", "launcher_of", "target_of"]

H = TypeVar("H")


class LaunchOptions(TypedDict, total=False):
    """The keywords of ``with_options``; what they mean is said there."""

    session: Any
    connection: Any
    engine: Starter | None
    key: object
    queue: str | None
    priority: int | None
    at: datetime | timedelta | None
    on_conflict: ConflictMode | None
    same_args: bool


_UNFIT_KEYS: Final = (bool, float, list, dict, set)


@dataclass(frozen=True, slots=True)
class Launcher(Generic[H]):
    """A workflow class together with the options of its next starts.

    It is a value: keep it, pass it on, start any number of runs with it.

    Attributes:
        workflow: The class.
        options: The options.
    """

    workflow: Any
    options: StartOptions

    @overload
    def start(self: Launcher[None], /, *args: Any, **kwargs: Any) -> Run: ...
    @overload
    def start(self, /, hero: H, *args: Any, **kwargs: Any) -> Run: ...
    def start(self, /, *args: Any, **kwargs: Any) -> Run:
        """Start a run with these options; the arguments are those of ``Workflow.start``."""
        call = call_of(self.workflow, args, kwargs)
        return starter_for(self.options).start(call, self.options)

    def start_many(self, items: Iterable[Any]) -> list[Run]:
        """Start a run for each item with these options; the items are those of ``Workflow.start_many``.

        Raises:
            WrongArguments: ``key=`` is among the options: it names one run.
        """
        if self.options.key is not None:
            raise WrongArguments(
                f"with_options(key=...) names one run of {self.workflow.__name__}, and start_many() starts "
                "many. Give the class unique_by, or start each run with its key."
            )
        return starter_for(self.options).start_many(calls_of(self.workflow, items), self.options)

    @overload
    def find(
        self, *, key: object = None, hero: Any = None, missing: Literal["raise"] = "raise", **identity: Any
    ) -> Run: ...
    @overload
    def find(
        self, *, key: object = None, hero: Any = None, missing: IfMissing, **identity: Any
    ) -> Run | None: ...
    def find(
        self, *, key: object = None, hero: Any = None, missing: IfMissing = "raise", **identity: Any
    ) -> Run | None:
        """The open run that is meant, read in the transaction of these options; see ``Workflow.find``."""
        if problem := checks.broken_choice(missing, get_args(IfMissing)):
            raise WrongArguments(f"missing {problem}.")
        known = self.options.key if key is None else key
        wanted = wanted_of(self.workflow, known, hero, identity)
        return starter_for(self.options).find(wanted, self.options, missing)

    def signal(
        self,
        name: str,
        payload: Any = None,
        /,
        *,
        key: object = None,
        hero: Any = None,
        missing: IfMissing = "raise",
        idempotency_key: str | None = None,
        **identity: Any,
    ) -> bool:
        """Send a signal to the open run that is meant, in the transaction of these options; see ``Workflow.signal``."""
        run = self.find(key=key, hero=hero, missing=missing, **identity)
        if run is None:
            return False
        try:
            return run.signal(name, payload, idempotency_key=idempotency_key, **self._transaction())
        except RunNotLive:
            if missing == "ignore":
                # It has come to its end meanwhile.
                return False
            raise

    def wake(
        self, *, key: object = None, hero: Any = None, missing: IfMissing = "raise", **identity: Any
    ) -> bool:
        """Make the open run that is meant look at its gate again; see ``Workflow.wake``."""
        run = self.find(key=key, hero=hero, missing=missing, **identity)
        if run is None:
            return False
        run.wake(**self._transaction())
        return True

    def _transaction(self) -> dict[str, Any]:
        return {"session": self.options.session, "connection": self.options.connection}


def launcher_of(cls: type[Any], options: Mapping[str, Any]) -> Launcher[Any]:
    """The launcher of ``cls`` with these options.

    Raises:
        WrongArguments: There is no such option, a value does not fit, or two exclude each other.
    """
    name = f"{cls.__name__}.with_options()"
    for option, value in options.items():
        if option not in OPTION_NAMES:
            hint = checks.meant(option, OPTION_NAMES)
            raise WrongArguments(
                f"{name} has no option {option!r}{hint}. The options are {', '.join(OPTION_NAMES)}; "
                "arguments of the workflow go to start()."
            )
        if problem := _problem(option, value):
            raise WrongArguments(f"{name}: {option} {problem}.")
    if options.get("session") is not None and options.get("connection") is not None:
        raise WrongArguments(
            f"{name}: session and connection exclude each other; give the one you have open."
        )
    return Launcher(cls, StartOptions(**options))


def target_of(target: object, verb: str) -> tuple[Any, StartOptions]:
    """The class that is to be called, and the options for its start.

    Args:
        target: A workflow class, or what its ``with_options`` answered.
        verb: Who calls it, for messages.

    Raises:
        WrongArguments: It is neither, or an option says where to write: a child is started by its caller's engine, in
            the transaction that records the call.
    """
    if isinstance(target, Launcher):
        for option in ("session", "connection", "engine"):
            if getattr(target.options, option) is not None:
                raise WrongArguments(
                    f"{verb}: {option}= has no meaning here. The child is started by the engine of the run that calls "
                    "it, in the transaction that records the call; leave it out."
                )
        return target.workflow, target.options
    if isinstance(target, type) and hasattr(target, "workflow_name") and hasattr(target, "plan"):
        return target, StartOptions()
    raise WrongArguments(
        f"{verb} takes a workflow class, or what its with_options(...) answered; got {target!r}."
    )


def _problem(option: str, value: Any) -> str | None:
    if option == "key":
        return _broken_key(value)
    if option == "same_args":
        return checks.broken_flag(value)
    return None if value is None or option not in _VALUES else _VALUES[option](value)


def _broken_key(key: object) -> str | None:
    if key is None:
        return "is None, which names no run; leave it out to start without a key"
    if isinstance(key, _UNFIT_KEYS):
        return f"must be something that identifies, such as a str, int, UUID or a tuple of these; got {key!r}"
    return None


def _broken_at(at: object) -> str | None:
    if isinstance(at, timedelta):
        return checks.broken_duration(at, zero=True)
    if isinstance(at, datetime):
        return checks.broken_instant(at)
    return f"must be an aware datetime, or a timedelta from now; got {at!r}"


def _broken_engine(engine: object) -> str | None:
    if callable(getattr(engine, "start", None)) and callable(getattr(engine, "start_many", None)):
        return None
    return f"must be a Stepwell(...); got {engine!r}"


def _broken_session(session: object) -> str | None:
    if callable(getattr(session, "execute", None)):
        return None
    return f"must be one that can execute statements; got {session!r}"


_VALUES: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "session": _broken_session,
    "connection": _broken_session,
    "engine": _broken_engine,
    "queue": checks.broken_name,
    "priority": lambda value: checks.broken_whole(value, least=0),
    "at": _broken_at,
    "on_conflict": lambda value: checks.broken_choice(value, CONFLICT_MODES),
}
