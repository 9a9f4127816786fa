"""Databases that exist as long as somebody measures in them."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

__all__ = ["Databases", "default_server"]

# Inside the checkout: the folder for temporary files is often in memory, where durability costs nothing.
_FOLDER = Path(__file__).resolve().parent / "results"


class Databases:
    """Makes empty databases of one kind.

    Args:
        kind: ``sqlite`` or ``postgresql``.
        server: For PostgreSQL, a URL whose user may create databases.
    """

    def __init__(self, kind: str, server: str) -> None:
        self.kind = kind
        self._server = make_url(server).set(drivername="postgresql")

    @contextmanager
    def fresh(self, label: str) -> Iterator[str]:
        """The URL of a new database, dropped at the end."""
        if self.kind == "sqlite":
            _FOLDER.mkdir(exist_ok=True)
            folder = tempfile.mkdtemp(prefix=f"{label}-", dir=_FOLDER)
            try:
                yield f"sqlite:///{folder}/{label}.db"
            finally:
                shutil.rmtree(folder)
            return
        name = f"stepwell_bench_{label}_{secrets.token_hex(4)}"
        self._do(f"CREATE DATABASE {name}")
        try:
            yield self._server.set(database=name).render_as_string(hide_password=False)
        finally:
            self._do(f"DROP DATABASE {name} WITH (FORCE)")

    def describe(self) -> dict[str, str]:
        """What the figures depend on beside the systems."""
        if self.kind == "sqlite":
            return {"version": sqlite3.sqlite_version, "synchronous": "FULL", "journal_mode": "WAL"}
        with psycopg.connect(self._url()) as connection:
            settings = ("server_version", "synchronous_commit", "fsync", "wal_sync_method", "shared_buffers")
            rows = {name: connection.execute(f"SHOW {name}").fetchone() for name in settings}
        return {name: row[0] for name, row in rows.items() if row}

    def _do(self, statement: str) -> None:
        with psycopg.connect(self._url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _url(self) -> str:
        return self._server.render_as_string(hide_password=False)


def default_server() -> str:
    """The PostgreSQL server of the tests."""
    return os.environ.get("STEPWELL_TEST_POSTGRES_URL", "postgresql://postgres@127.0.0.1:5432/postgres")
