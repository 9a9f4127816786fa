"""A reminder half an hour before an appointment; one that moves replaces its reminder."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from examples.outside import Service
from examples.records import Appointment
from stepwell import Run, Workflow, step

mail = Service()


class AppointmentReminder(Workflow[Appointment]):
    on_conflict = "replace"

    @step(wait_until=lambda self: self.hero.starts_at - timedelta(minutes=30))
    def remind(self) -> None:
        if self.hero.is_called_off:
            self.skip()
        mail("remind", self.hero.id)


def schedule(session: Session, appointment: Appointment, starts_at: datetime) -> Run:
    """Called in the transaction that makes or moves the appointment."""
    appointment.starts_at = starts_at
    session.add(appointment)
    return AppointmentReminder.with_options(session=session).start(appointment)
