"""What the demo's workers load: ``stepwell -A stepwell.demo.app:engine worker``."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final

from stepwell import Stepwell, StoreError
from stepwell.demo.onboarding import Onboarding

__all__ = ["DATABASE", "LEASE", "Onboarding", "engine", "open_engine"]

DATABASE: Final = "STEPWELL_DEMO_DATABASE"
"""The environment variable that holds the database's URL."""
LEASE: Final = timedelta(seconds=3)
"""Short, so that the runs of a killed worker are taken over while you watch."""


def open_engine(url: str) -> Stepwell:
    """The engine on the demo's database."""
    return Stepwell(url, lease=LEASE)


def engine() -> Stepwell:
    """The same, for a worker, which learns the URL from its environment.

    Raises:
        StoreError: It is not there.
    """
    url = os.environ.get(DATABASE)
    if url is None:
        raise StoreError(f"the demo's workers find their database by {DATABASE}; `stepwell demo` sets it.")
    return open_engine(url)
