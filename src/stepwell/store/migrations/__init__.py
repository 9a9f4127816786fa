"""Numbered changes of the schema, run by Alembic.

How to write one: ``versions/NNNN_what.py`` with ``revision``, ``down_revision`` and ``upgrade(tables)``. It
spells out columns and types and imports nothing from ``schema`` or ``types``: these go on changing, and what
a released revision does must not. It only adds, so that workers of the version before go on working while a
deploy is under way; what is no longer needed is dropped one release later.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION_TABLE"]

VERSION_TABLE: Final = "stepwell_schema_version"
"""Where the tables' revision is kept."""
