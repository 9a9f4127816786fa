"""A person is asked only if the machine is not sure, and has an hour to answer."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from stepwell import Run, Stepwell, Workflow, step

moderation = Service()


class PostReview(Workflow):
    unique_by = "post"

    def run(self, post: str) -> str:
        verdict = self.judge(post)
        if verdict == "unsure":
            verdict = self.wait_for_signal("review", timeout=timedelta(hours=1), default="rejected")
        self.publish(post, verdict)
        return verdict

    @step
    def judge(self, post: str) -> str:
        moderation("judge", post)
        return "unsure" if "?" in post else "approved"

    @step
    def publish(self, post: str, verdict: str) -> None:
        moderation(verdict, post)


def review_queue(well: Stepwell) -> list[Run]:
    """What waits for a person, the oldest first."""
    return well.runs(PostReview).in_state("awaiting").at_step("review").oldest().all()
