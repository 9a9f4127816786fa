"""Which engine a command works with: the application's own, or one on a database URL."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from stepwell.cli.exits import CommandFailed, ExitCode
from stepwell.engine.engine import Stepwell
from stepwell.errors import SchemaOutdated
from stepwell.serialization.paths import with_article

__all__ = ["Application", "app_option", "database_options", "load_engine"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Application:
    """What the command line says about the engine, wherever it says it.

    Attributes:
        target: ``module:attribute``.
        database: A database URL.
    """

    target: str | None = None
    database: str | None = None

    def engine(self) -> Stepwell:
        """The engine that is meant.

        Raises:
            UsageError: None is.
            CommandFailed: It cannot be loaded.
        """
        if self.database is not None:
            if self.target is not None:
                raise click.UsageError("give either -A or --database, not both.")
            return Stepwell(self.database, default=False)
        return self.loaded()

    def loaded(self) -> Stepwell:
        """The application's engine, with its workflow classes imported.

        Raises:
            UsageError: None is named, or a database instead of it.
            CommandFailed: It cannot be loaded.
        """
        if self.database is not None:
            raise click.UsageError("this needs the application's classes: give -A instead of --database.")
        target = self.target or os.environ.get("STEPWELL_APP")
        if not target:
            raise click.UsageError(
                "which application? Give -A module:engine, or set STEPWELL_APP (see `stepwell --help`)."
            )
        return load_engine(target)

    def checked(self) -> Stepwell:
        """The engine, on tables that this version can work with.

        Raises:
            SchemaOutdated: The tables are missing or old.
        """
        engine = self.engine()
        require_file(engine)
        engine.check()
        return engine


def require_file(engine: Stepwell) -> None:
    """See that an SQLite file is there: connecting to a missing one would make an empty one.

    Raises:
        SchemaOutdated: It is not.
    """
    name = engine.database.engine.url.database or ":memory:"
    if not engine.database.dialect.has_one_writer or name.startswith((":memory:", "file:")):
        return
    if not Path(name).exists():
        raise SchemaOutdated(
            f"there is no database file {name}. `stepwell db upgrade` makes it, with its tables."
        )


def load_engine(target: str) -> Stepwell:
    """Import an application and answer its engine.

    Args:
        target: ``module:attribute``; the attribute is a ``Stepwell``, or a function that makes one.

    Raises:
        CommandFailed: There is no such thing.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise _refused(f"{target!r} names no engine: write module:attribute, such as shop.app:engine.")
    value = _imported(module_name, attribute)
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise _refused(f"{module_name} has no {attribute!r}; -A takes module:attribute.")
        value = getattr(value, name)
    if not isinstance(value, Stepwell) and callable(value):
        value = value()
    if not isinstance(value, Stepwell):
        raise _refused(
            f"{target} is {with_article(type(value).__name__)}: -A wants a Stepwell(...), or a function that makes one."
        )
    return value


def _imported(name: str, attribute: str) -> Any:
    if "/" in name:
        raise _refused(f"{name} is a path: {_module_and(name, attribute)}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name.endswith(".py") and missing in (name, name.removesuffix(".py")):
            raise _refused(f"there is no module {name!r}: {_module_and(name, attribute)}") from None
        if name == missing or name.startswith(f"{missing}."):
            raise _refused(
                f"there is no module {missing!r}. Run the command in your project, or set PYTHONPATH."
            ) from None
        raise _refused(
            f"{name} cannot be imported: it needs the module {missing!r}, which is not there."
        ) from error


def _module_and(path: str, attribute: str) -> str:
    """What to write instead of a file."""
    module = ".".join(part for part in path.removesuffix(".py").split("/") if part.strip("."))
    return f"-A takes a module's name and no file. Write {module}:{attribute}."


def _refused(message: str) -> CommandFailed:
    return CommandFailed(message, ExitCode.USAGE)


def app_option(command: F) -> F:
    """Let a command take ``-A``, which can also stand before it."""
    return click.option(
        "-A",
        "--app",
        "target",
        metavar="MODULE:ENGINE",
        help="The application: a Stepwell(...) or a function that makes one. Also: STEPWELL_APP.",
        expose_value=False,
        callback=_remember("target"),
    )(command)


def database_options(command: F) -> F:
    """Let a command take ``-A`` or ``--database``."""
    option = click.option(
        "--database",
        metavar="URL",
        help="A database instead of an application, such as sqlite:///app.db.",
        expose_value=False,
        callback=_remember("database"),
    )
    return app_option(option(command))


def _remember(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def remember(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            setattr(context.ensure_object(Application), name, value)

    return remember
