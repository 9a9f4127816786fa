"""``python app.py`` beside workers that import ``app``: classes of the script are the module's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

APP = """
import sys
from dataclasses import dataclass

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stepwell import RunAlreadyExists, Stepwell, Worker, Workflow, step

print(f"loaded as {__name__}")


class Base(DeclarativeBase): ...


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@dataclass
class Letter:
    text: str


class Greet(Workflow[User]):
    @step
    def greet(self):
        letter = self.args["letter"]
        assert type(letter) is Letter and type(self.hero) is User
        self.finish(Letter(f"{letter.text}, {self.hero.name}"))


well = Stepwell("sqlite:///app.db")
engine = create_engine("sqlite:///app.db")


def start():
    well.migrate()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        user = session.merge(User(id=1, name="Ada"))
        session.commit()
        try:
            run = Greet.start(user, letter=Letter("hello"))
        except RunAlreadyExists as error:
            print("exists", error.run.id, error.run.info().hero_type)
        else:
            print("started", run.id, run.info().hero_type)


def work():
    with Worker(well, threads=1):
        for run in well.runs().live():
            assert run.result() == Letter("hello, Ada")
            print("done", run.id)


if __name__ == "__main__":
    {"start": start, "work": work}[sys.argv[1]]()
"""

MAIN = "__main__"


@pytest.mark.parametrize("starts", ["python app.py", "python -m app", "import app"])
@pytest.mark.parametrize("works", ["python app.py", "import app"])
def test_a_run_that_a_script_started_is_driven_by_importers_and_the_other_way_round(
    tmp_path: Path, starts: str, works: str
) -> None:
    """The hero, the arguments and the result are of the script's classes here and of the module's there; the hero is
    one, whoever starts; and nobody runs the script a second time.
    """
    (tmp_path / "app.py").write_text(APP)

    def do(how: str, what: str) -> list[list[str]]:
        commands = {
            "python app.py": ["app.py", what],
            "python -m app": ["-m", "app", what],
            "import app": ["-c", f"import app; app.{what}()"],
        }
        finished = subprocess.run(
            [sys.executable, *commands[how]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        loaded, *lines = finished.stdout.splitlines()
        assert loaded == f"loaded as {'app' if how == 'import app' else MAIN}"
        return [line.split() for line in lines]

    ((verb, run_id, hero),) = do(starts, "start")
    assert (verb, hero) == ("started", "sa:app:User")
    assert do(works, "start") == [["exists", run_id, hero]]
    assert do(works, "work") == [["done", run_id]]
