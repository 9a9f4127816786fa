"""Where no record has a place of its own in a sequence, a sweep stays a sweep, now with a cursor and a history."""

from __future__ import annotations

from sqlalchemy import select

from examples.records import Chat
from stepwell import Run, Workflow, resumable_step


class ChatSweep(Workflow):
    on_conflict = "skip"

    @resumable_step
    def delete_old_chats(self) -> None:
        old = select(Chat).where(Chat.is_old)
        for count, chats in enumerate(self.cursor.batches(old, size=100), start=1):
            for chat in chats:
                self.session.delete(chat)
            self.progress(count * 100)


def sweep() -> Run:
    """For a cron job; a sweep that still runs goes on, and no second one begins beside it."""
    return ChatSweep.with_options(key="the sweep").start()
