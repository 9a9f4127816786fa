"""Everything that Stepwell raises, as one tree.

::

    StepwellError
    ├── DefinitionError            an author's class is wrong (raised when the class is created)
    ├── RunError                   this run, or this value, cannot do that
    │   ├── WrongArguments         (TypeError) a start with arguments or options that do not fit
    │   ├── RunNotFound            (LookupError) no such run
    │   ├── RunNotLive             the run is over, or nobody with that key is live
    │   ├── RunAlreadyExists       the identity is taken; carries the live run
    │   ├── InvalidTransition      the run's state does not allow this
    │   ├── ResumeRefused          the run has gone on after the failure that it would take back
    │   ├── RunFailed              result() of a run that failed
    │   ├── RunCanceled            result() of a run that was canceled
    │   ├── ResultTimeout          (TimeoutError) result() waited long enough
    │   ├── HeroGone               (LookupError) the record that the run is about no longer exists
    │   ├── RecordGone             (LookupError) a stored reference points to nothing
    │   ├── Unstorable             (TypeError) a value that cannot be stored, with its path
    │   ├── TooLarge               (Unstorable) a value above its size limit
    │   ├── Undecodable            (ValueError) stored text that cannot be read back
    │   ├── StepFailed             in ``run()``: a step's error that no policy absorbed
    │   ├── ChildFailed            another workflow that was called has failed, or was canceled
    │   ├── StepTimedOut           (TimeoutError) a step's body ran longer than its ``timeout=``
    │   ├── WaitTimedOut           (TimeoutError) a wait ran out
    │   ├── DeadlineExceeded       (TimeoutError) the whole run has taken too long
    │   └── UnknownWorkflow        (LookupError) no class with that name is loaded
    └── StoreError                 the database, or how it is used
        ├── SchemaOutdated         the tables are missing or old; says what to run
        └── UnsupportedDatabase    wrong product, version or table type

Control flow inside a step (``pause``, ``cancel``, …) is no error: see ``execution/suspension.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any
from uuid import UUID

__all__ = [
    "ChildFailed",
    "DeadlineExceeded",
    "DefinitionError",
    "HeroGone",
    "InvalidTransition",
    "RecordGone",
    "ResultTimeout",
    "ResumeRefused",
    "RunAlreadyExists",
    "RunCanceled",
    "RunError",
    "RunFailed",
    "RunNotFound",
    "RunNotLive",
    "SchemaOutdated",
    "StepFailed",
    "StepTimedOut",
    "StepwellError",
    "StoreError",
    "TooLarge",
    "Undecodable",
    "UnknownWorkflow",
    "Unstorable",
    "UnsupportedDatabase",
    "WaitTimedOut",
    "WrongArguments",
]


class StepwellError(Exception):
    """The root: catch it to catch everything that Stepwell raises."""


class DefinitionError(StepwellError):
    """An author's class breaks a rule; raised when the class is created.

    Attributes:
        workflow: The class's name.
        step: The step's name, or None when the mistake is not about one step.
        rule: What was broken and what to write instead.
    """

    def __init__(self, workflow: str, rule: str, *, step: str | None = None) -> None:
        self.workflow = workflow
        self.step = step
        self.rule = rule
        where = f"{workflow}.{step}" if step else workflow
        super().__init__(f"{where}: {rule}")


class RunError(StepwellError):
    """Something that this run, or a value given to it, cannot do."""


class WrongArguments(RunError, TypeError):
    """A workflow was started with arguments or options that it does not take."""


class RunNotFound(RunError, LookupError):
    """No run has this id (or key)."""

    @classmethod
    def of(cls, run_id: object) -> RunNotFound:
        """The error that says why there may be none."""
        return cls(
            f"there is no run {run_id}: the transaction that starts it is not committed yet or was rolled back, or the "
            "run was deleted."
        )


class RunNotLive(RunError):
    """The run is over, so it can no longer be signalled or commanded."""


class RunAlreadyExists(RunError):
    """The identity is taken by another run.

    Attributes:
        run: A handle on the run that holds the identity.
    """

    def __init__(self, message: str, run: Any) -> None:
        super().__init__(message)
        self.run = run


class InvalidTransition(RunError):
    """The run's state does not allow this command.

    Attributes:
        run_id: The run.
        state: The state that it is in.
        verb: What was asked for.
        allowed: The states in which the verb works.
    """

    def __init__(self, run_id: object, state: str, verb: str, allowed: Iterable[str]) -> None:
        self.run_id = run_id
        self.state = state
        self.verb = verb
        self.allowed = tuple(sorted(allowed))
        super().__init__(
            f"run {run_id} is {state}: it cannot {verb}. "
            f"{verb} works while a run is {', '.join(self.allowed) or 'in no state'}."
        )


class ResumeRefused(RunError):
    """``resume()`` or ``skip()`` of a run whose ``run()`` has gone on after the call that failed.

    It may have undone what was done before: to take back the failure alone would leave that as it is, and count.

    Attributes:
        run_id: The run.
        step: The call that failed.
        later: What was called after it, by name.
    """

    def __init__(self, run_id: Any, verb: str, step: str, later: Iterable[str]) -> None:
        self.run_id = run_id
        self.step = step
        self.later = tuple(dict.fromkeys(later))
        super().__init__(
            f"{verb}() of run {run_id} is refused: after {step!r} had failed, run() called {', '.join(self.later)}, "
            f"which would go on to count. run.resume(from_step={step!r}) makes {step!r} and all that came after it "
            "anew, with the same idempotency keys unless new_keys=True is given; run.cancel() ends the run as it is."
        )


class RunFailed(RunError):
    """``result()`` of a run that failed.

    Attributes:
        run_id: The run.
        error_class: The recorded error's qualified class name, or None.
        error_message: Its text, or None.
    """

    def __init__(
        self, run_id: object, reason: str, *, error_class: str | None, error_message: str | None
    ) -> None:
        self.run_id = run_id
        self.reason = reason
        self.error_class = error_class
        self.error_message = error_message
        what = f" with {error_class}: {error_message or ''}" if error_class else ""
        super().__init__(
            f"run {run_id} failed ({reason}){what.rstrip(' :.')}. "
            "Its history is in run.steps, and run.explain() says how it is tried again."
        )


class RunCanceled(RunError):
    """``result()`` of a run that was canceled."""


class ResultTimeout(RunError, TimeoutError):
    """``result(timeout=)`` waited that long and the run is not over."""


class HeroGone(RunError, LookupError):
    """The record that the run is about no longer exists."""


class RecordGone(RunError, LookupError):
    """A stored reference points to a record that no longer exists."""


class Unstorable(RunError, TypeError):
    """A value that cannot be stored.

    Attributes:
        path: Where in the value the trouble is, such as ``result['lines'][3].price``.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class TooLarge(Unstorable):
    """A value above its size limit.

    Attributes:
        size: Its size in bytes, encoded.
        limit: The limit in bytes.
    """

    def __init__(self, message: str, *, size: int, limit: int, path: str = "") -> None:
        super().__init__(message, path=path)
        self.size = size
        self.limit = limit


class Undecodable(RunError, ValueError):
    """Stored text that cannot be read back into a value."""


class _Recorded:
    """An error that stands for another one, of which the class's name and the text were recorded."""

    error_class: str

    def caused_by(self, error: type[BaseException] | str) -> bool:
        """The error was of this class, or of one derived from it.

        Args:
            error: The class, or its dotted name; a name means this very class.
        """
        if isinstance(error, str):
            return self.error_class == error
        cls = _loaded(self.error_class)
        return self.error_class == _dotted(error) if cls is None else issubclass(cls, error)


class StepFailed(_Recorded, RunError):
    """In ``run()``: a step has failed, and no policy absorbed it. It is raised at each replay alike, and may be caught.

    On the first pass its ``__cause__`` is the error itself; a replay knows only what was recorded of it.

    Attributes:
        step: The step's name, with what tells the call apart: ``ship["A"]``.
        error_class: The error's class as dotted text, such as ``"shop.payments.CardDeclined"``.
        message: The error's text.
    """

    def __init__(self, step: str, error_class: str | None, message: str | None) -> None:
        super().__init__(f"step {step} failed with {error_class}: {message}")
        self.step = step
        self.error_class = error_class or ""
        self.message = message or ""


class ChildFailed(_Recorded, RunError):
    """A workflow that was called by ``self.call(...)``, or awaited as a :class:`Child`, has failed or was canceled.

    In ``run()`` it is raised at each replay alike, and may be caught; that somebody resumes the child afterwards
    changes nothing about it. A call that is made once more, by a retry of the step or by ``resume()`` of the run that
    it has failed, starts another child, unless somebody has resumed the first one: then it waits for that.

    Attributes:
        workflow: The child's class, by its stable name.
        run_id: The child.
        reason: Why it has failed or was canceled, as its row says; ``""`` where nobody said so.
        error_class: The class of its error as dotted text; ``""`` if it was canceled.
        message: The error's text.
        was_canceled: It was canceled, and has not failed.
    """

    def __init__(
        self,
        workflow: str,
        run_id: UUID,
        reason: str | None,
        error_class: str | None = None,
        message: str | None = None,
        *,
        was_canceled: bool = False,
    ) -> None:
        what = "was canceled" if was_canceled else "has failed"
        why = f" with {error_class}: {message}" if error_class else ""
        super().__init__(
            f"{workflow}, which was called, {what} ({reason or 'no reason given'}){why}. It is run {run_id}."
        )
        self.workflow = workflow
        self.run_id = run_id
        self.reason = reason or ""
        self.error_class = error_class or ""
        self.message = message or ""
        self.was_canceled = was_canceled


class StepTimedOut(RunError, TimeoutError):
    """A step's body ran longer than its ``timeout=``."""


class WaitTimedOut(RunError, TimeoutError):
    """A wait ran out before what it waited for came."""


class DeadlineExceeded(RunError, TimeoutError):
    """The run has taken longer than its class's ``deadline``."""


class UnknownWorkflow(RunError, LookupError):
    """No class with this workflow name is loaded in this process."""


class StoreError(StepwellError):
    """The database could not do it, or is used in a way that cannot work."""


class SchemaOutdated(StoreError):
    """The tables are missing or older than this library; the message says what to run."""


class UnsupportedDatabase(StoreError):
    """A database product, version or table type that Stepwell does not run on."""


def _dotted(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def _loaded(dotted: str) -> type[BaseException] | None:
    """The class with this dotted name, if its module is loaded: an ``except`` for it names it, so it is."""
    module, _, name = dotted.rpartition(".")
    found: Any = sys.modules.get(module or "builtins")
    cls = getattr(found, name, None)
    return cls if isinstance(cls, type) and issubclass(cls, BaseException) else None
