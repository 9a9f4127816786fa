"""A long import, line by line: a broken file ends it, a full disk stops it until there is room again."""

from __future__ import annotations

from examples.records import Account, Line
from stepwell import Cancel, Pause, Workflow, resumable_step

FILES: dict[str, list[str]] = {}
"""The files that were uploaded, by name."""


class MalformedFile(Exception): ...


class QuotaExceeded(Exception): ...


class CsvImport(Workflow[Account]):
    """Nobody can mend the file; a person can upgrade the account, and ``resume()`` goes on behind the last line."""

    policies = [Cancel(MalformedFile), Pause(QuotaExceeded)]

    @resumable_step
    def import_lines(self) -> None:
        for text in self.cursor.iterate(FILES[self.args["file"]]):
            if "\0" in text:
                raise MalformedFile(self.args["file"])
            if self.hero.used_bytes + len(text) > self.hero.quota_bytes:
                raise QuotaExceeded(f"{self.hero.quota_bytes} bytes are used up")
            # The line and the cursor are committed together: none is lost, none is there twice.
            self.session.add(Line(account_id=self.hero.id, text=text))
            self.hero.used_bytes += len(text)
