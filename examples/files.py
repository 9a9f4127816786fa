"""Files: steps that are tried again, a step that is called several times, and one that is no method of the class."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from stepwell import Backoff, Retry, Workflow, step

storage = Service()
images = Service()

_SOON = Backoff(timedelta(seconds=1), cap=timedelta(seconds=30))


class FileProcessing(Workflow):
    def run(self, file_id: str) -> list[str]:
        self.upload(file_id, purpose="original")
        self.upload(file_id, purpose="profile_image")
        small, large = self.thumbnails(file_id)
        self.step("publish", storage, "publish", file_id)
        return [small, large]

    @step(key_by="purpose", on_exception=Retry(ConnectionError, TimeoutError, attempts=5, backoff=_SOON))
    def upload(self, file_id: str, purpose: str) -> str:
        return storage("upload", file_id, purpose)

    @step(on_exception=Retry(attempts=3, backoff=_SOON))
    def thumbnails(self, file_id: str) -> tuple[str, str]:
        return images("small", file_id), images("large", file_id)
