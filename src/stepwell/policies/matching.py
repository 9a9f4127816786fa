"""Errors by name: how a class is written down, and whether an error is what a name stands for."""

from __future__ import annotations

import builtins
import sys

__all__ = ["ErrorSpec", "check_error", "is_error", "name_of"]

ErrorSpec = type[BaseException] | str
"""An exception class, or its dotted name where importing it is not wanted."""


def name_of(error: ErrorSpec) -> str:
    """The error's dotted name; built-in ones go without their module."""
    if isinstance(error, str):
        return error.removeprefix("builtins.")
    return f"{error.__module__}.{error.__qualname__}".removeprefix("builtins.")


def is_error(error: BaseException, wanted: ErrorSpec) -> bool:
    """``error`` is of the class ``wanted``, or of a subclass of it."""
    if isinstance(wanted, type):
        return isinstance(error, wanted)
    mro = type(error).__mro__
    return any(name_of(cls) == name_of(wanted) for cls in mro) or _loaded(wanted) in mro


def check_error(error: object, who: str) -> None:
    """Refuse what names no error.

    Raises:
        TypeError: It is neither an exception class nor a string.
        ValueError: It is no dotted name.
    """
    if isinstance(error, type) and issubclass(error, BaseException):
        return
    if not isinstance(error, str):
        raise TypeError(f"{who}: an error is an exception class or its dotted name; got {error!r}")
    if not all(part.isidentifier() for part in error.split(".")):
        raise ValueError(f'{who}: {error!r} is no dotted name such as "smtplib.SMTPException"')
    known = getattr(builtins, error, None)
    if "." not in error and not (isinstance(known, type) and issubclass(known, BaseException)):
        raise ValueError(
            f'{who}: {error!r} is no built-in exception; write its module too, "package.{error}"'
        )


def _loaded(dotted: str) -> object:
    """The object of this name, if its module is loaded: errors are often re-exported under shorter names.

    Nothing is imported: an error whose module is not loaded cannot have been raised.
    """
    module_name, _, name = dotted.rpartition(".")
    module = sys.modules.get(module_name)
    return None if module is None else getattr(module, name, None)
