"""What is outside of Stepwell in these examples: services that remember what they were asked, and fail on demand."""

from __future__ import annotations

from collections import deque
from typing import ClassVar


class Service:
    """A client of somebody else's service. In an application this is your own code."""

    everywhere: ClassVar[list[Service]] = []

    def __init__(self) -> None:
        Service.everywhere.append(self)
        self.forget()

    def forget(self) -> None:
        """Begin anew, as each test does."""
        self.calls: list[tuple[object, ...]] = []
        self.facts: set[tuple[object, ...]] = set()
        self.errors: deque[Exception] = deque()
        self.doubts: deque[Exception] = deque()

    def __call__(self, *what: object) -> str:
        """Ask the service for something; it answers with a receipt."""
        if self.errors:
            raise self.errors.popleft()
        self.calls.append(what)
        return f"{what[0]}-{len(self.calls)}"

    def knows(self, *fact: object) -> bool:
        """Whether something has happened out there."""
        if self.doubts:
            raise self.doubts.popleft()
        return fact in self.facts

    def learn(self, *fact: object) -> None:
        """Something happens out there."""
        self.facts.add(fact)

    def fail(self, error: Exception, times: int = 1) -> None:
        """The next calls are answered with an error."""
        self.errors.extend([error] * times)

    def doubt(self, error: Exception, times: int = 1) -> None:
        """The next questions are answered with an error."""
        self.doubts.extend([error] * times)
