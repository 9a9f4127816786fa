"""A mail gateway as they are: a little slow, and now and then it refuses. What it did it notes in a file."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["OUTBOX", "REFUSES_ONE_IN", "GatewayDown", "Traffic", "read_traffic", "send"]

OUTBOX: Final = "STEPWELL_DEMO_OUTBOX"
"""The environment variable that names the gateway's file."""
REFUSES_ONE_IN: Final = 7

_DELAY_SECONDS: Final = (0.02, 0.08)
_ACCEPTED: Final = "250"
_REFUSED: Final = "421"


class GatewayDown(ConnectionError):
    """The gateway refuses for the moment."""


def send(to: str, subject: str, *, key: str) -> None:
    """Hand a mail over to the gateway.

    Args:
        to: The address.
        subject: What it is about.
        key: The same for each try at the same mail, so that the gateway can drop repetitions.

    Raises:
        GatewayDown: It was not accepted; try again later.
    """
    time.sleep(random.uniform(*_DELAY_SECONDS))
    if random.randrange(REFUSES_ONE_IN) == 0:
        _note(_REFUSED, key, to, subject)
        raise GatewayDown("421 try again later")
    _note(_ACCEPTED, key, to, subject)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the gateway has seen.

    Attributes:
        refused: Mails that it did not accept.
        accepted: Mails that it accepted, repetitions included.
        repeated: Mails that it had accepted before, under the same key, and dropped.
    """

    refused: int
    accepted: int
    repeated: int


def read_traffic(outbox: Path) -> Traffic:
    """Read the gateway's notes."""
    lines = outbox.read_text(encoding="utf-8").splitlines() if outbox.exists() else []
    notes = [line.split("\t") for line in lines]
    accepted = Counter(key for code, key, *_ in notes if code == _ACCEPTED)
    refused = sum(code == _REFUSED for code, *_ in notes)
    return Traffic(refused, accepted.total(), accepted.total() - len(accepted))


def _note(code: str, key: str, to: str, subject: str) -> None:
    """One line in one write, so that a process that is killed leaves no half of one."""
    line = f"{code}\t{key}\t{to}\t{subject}\n".encode()
    file = os.open(os.environ[OUTBOX], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
