"""How a command ends: an exit code that scripts can trust, and one line that says what to do."""

from __future__ import annotations

from enum import IntEnum

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from stepwell.errors import DefinitionError, SchemaOutdated, StepwellError
from stepwell.store.database import AnswerLost

__all__ = ["CommandFailed", "ExitCode", "OutputClosed", "expected"]


class ExitCode(IntEnum):
    """What the process says to whoever called it."""

    DONE = 0
    FAILED = 1
    """The command could not do it: no such run, a state that does not allow it, a database out of reach."""
    USAGE = 2
    """It was called in a way that makes no sense, or names an application that cannot be loaded."""
    OUTDATED = 3
    """The tables are missing or old; nothing was tried."""
    INTERRUPTED = 130
    """Ctrl-C."""
    OUTPUT_CLOSED = 141
    """Whoever read the output went away, such as ``head``."""


class CommandFailed(Exception):
    """The command ends here, with one line on standard error.

    Attributes:
        code: The exit code.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


def expected(error: Exception) -> CommandFailed | None:
    """The ending that belongs to an error; None for one that nobody expects, which shows its traceback."""
    match error:
        case CommandFailed():
            return error
        case SchemaOutdated():
            return CommandFailed(str(error), ExitCode.OUTDATED)
        case DefinitionError():
            # Raised while the application is imported: it cannot be loaded.
            return CommandFailed(str(error), ExitCode.USAGE)
        case StepwellError():
            return CommandFailed(str(error))
        case AnswerLost():
            return CommandFailed(f"the database cannot be reached: {error}")
        case OperationalError() | InterfaceError():
            return CommandFailed(f"the database refused: {_cause(error)}")
        case _:
            return None


def _cause(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]
