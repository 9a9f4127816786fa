"""What a class can do with its open runs without knowing their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from stepwell.definition.finding import IfMissing
from stepwell.definition.launching import launcher_of

if TYPE_CHECKING:
    from stepwell.engine.run import Run

__all__ = ["Findable"]


class Findable:
    """Runs of the class by key, by hero, or by the arguments that identify them."""

    @overload
    @classmethod
    def find(
        cls, *, key: object = None, hero: Any = None, missing: Literal["raise"] = "raise", **identity: Any
    ) -> Run: ...
    @overload
    @classmethod
    def find(
        cls, *, key: object = None, hero: Any = None, missing: IfMissing, **identity: Any
    ) -> Run | None: ...
    @classmethod
    def find(
        cls, *, key: object = None, hero: Any = None, missing: IfMissing = "raise", **identity: Any
    ) -> Run | None:
        """The open run that is meant, without knowing its id. Open are all runs that are not over.

        Args:
            key: The key that the run was started with, by ``with_options(key=...)``.
            hero: The record that it is about.
            missing: ``"ignore"``: that there is none is no error, and the answer is None.
            **identity: The arguments that identify the run, by name: those of ``unique_by`` or ``identified_by``.

        Raises:
            RunNotFound: No such run is open.
            RunNotLive: It is over, and its class uses each identity once.
            RunError: Several open runs are about the hero.
            WrongArguments: What is said identifies no run of the class.
        """
        return launcher_of(cls, {}).find(key=key, hero=hero, missing=missing, **identity)

    @classmethod
    def signal(
        cls,
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
        """Send a signal to the open run that is meant, without knowing its id.

        Args:
            name: The signal's name.
            payload: Anything that a step's result may be.
            key: The key that the run was started with.
            hero: The record that it is about.
            missing: ``"ignore"``: that no such run is open is no error, and the answer is False.
            idempotency_key: As for ``Run.signal``.
            **identity: The arguments that identify the run, by name: those of ``unique_by``.

        Durability:
            As for ``Run.signal``; ``with_options(session=...)`` sends it if and only if that transaction commits.

        Returns:
            False if a signal with this idempotency key was sent before.

        Raises:
            RunNotFound: No such run is open.
            RunNotLive: It is over, and its class uses each identity once.
            WrongArguments: What is said identifies no run of the class.
        """
        return launcher_of(cls, {}).signal(
            name, payload, key=key, hero=hero, missing=missing, idempotency_key=idempotency_key, **identity
        )

    @classmethod
    def wake(
        cls, *, key: object = None, hero: Any = None, missing: IfMissing = "raise", **identity: Any
    ) -> bool:
        """Make the open run that is meant look at its gate again, without knowing its id.

        Args:
            key: As for :meth:`find`.
            hero: As for :meth:`find`.
            missing: ``"ignore"``: that no such run is open is no error.
            **identity: As for :meth:`find`.

        Returns:
            False if there is no such run.

        Raises:
            RunNotFound: No such run is open.
        """
        return launcher_of(cls, {}).wake(key=key, hero=hero, missing=missing, **identity)
