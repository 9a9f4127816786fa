"""The library's loggers: one message for all records of a kind, with the facts of each as fields, and behind it.

An application's own format rarely shows fields; without them a line says that a run has failed, and not which.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from stepwell.texts import printable

__all__ = ["Facts", "facts_logger"]

_LONGEST: Final = 300


class Facts:
    """The facts of a record, as ``name=value`` behind its message.

    Args:
        facts: Each by its name; ``action`` says for machines what the message says, and None is not known.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def __str__(self) -> str:
        shown = (
            (name, value) for name, value in self._facts.items() if name != "action" and value is not None
        )
        return "".join(f" {name}={_shown(value)}" for name, value in shown)


class _FactsLogger(logging.LoggerAdapter[logging.Logger]):
    """Writes what it is given as ``extra`` behind the message, too."""

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        if not self.isEnabledFor(level):
            return
        facts = Facts(more.get("extra") or {})
        # The constant part stays the record's own: tools group by it.
        more["stacklevel"] = more.get("stacklevel", 1) + 1
        self.logger.log(level, f"{msg}%s", facts, **more)


def facts_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """The logger of a module of the library; its messages are constant and take no arguments."""
    return _FactsLogger(logging.getLogger(name))


def _shown(value: object) -> str:
    text = printable(value)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
    return repr(text) if not text or " " in text else text
