"""Classes of the main program: scripts and the processes that import them mean the same class by one name."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from stepwell.errors import Undecodable
from stepwell.serialization import find_class, stable_name


def main_program(monkeypatch: pytest.MonkeyPatch, name: str = "__main__", **attributes: object) -> type:
    """The class ``Job`` of a module that is the main program, with these attributes."""
    main = types.ModuleType(name)
    exec("class Job: pass", main.__dict__)
    vars(main).update(attributes)
    monkeypatch.setitem(sys.modules, "__main__", main)
    job: type = main.Job
    return job


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_class_of_a_main_program_without_a_name_is_stored_as_main(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was typed in or has no file that could be imported; a spawned child writes the same name."""
    for attributes in ({}, {"__file__": "/opt/bin/stepwell"}, {"__spec__": ModuleSpec("__main__", None)}):
        job = main_program(monkeypatch, name, **attributes)
        assert stable_name(job) == "__main__:Job"
        assert find_class("__main__:Job") is job


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_class_of_a_script_has_the_name_under_which_others_import_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python shop/app.py``, ``python -m shop.app`` and a worker that imports ``shop.app`` mean the same class."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    file, spec = str(tmp_path / "shop" / "app.py"), ModuleSpec("shop.app", None)
    for attributes in ({"__file__": file}, {"__file__": file, "__spec__": spec}):
        job = main_program(monkeypatch, name, **attributes)
        assert stable_name(job) == "shop.app:Job"
        assert find_class("shop.app:Job") is job
    assert "shop.app" not in sys.modules


def test_class_that_a_script_lacks_is_not_looked_for_by_running_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To import the main program under its name would run it a second time."""
    file = tmp_path / "stepwell_lacking.py"
    file.write_text("raise SystemExit('run again')")
    monkeypatch.syspath_prepend(tmp_path)
    main_program(monkeypatch, __file__=str(file))
    with pytest.raises(Undecodable, match="module 'stepwell_lacking' has no class Elsewhere"):
        find_class("stepwell_lacking:Elsewhere")


def test_script_that_is_loaded_twice_gives_each_name_to_one_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own modules may import it by its name; a namesake from elsewhere is another module."""
    again = types.ModuleType("app_twice")
    exec("class Job: pass\nclass Late: pass", again.__dict__)
    monkeypatch.setitem(sys.modules, "app_twice", again)
    job = main_program(monkeypatch, __file__=str(tmp_path / "app_twice.py"))
    assert (stable_name(job), stable_name(again.Job)) == ("__main__:Job", "app_twice:Job")
    assert find_class("app_twice:Job") is again.Job
    again.__file__ = str(tmp_path / "app_twice.py")
    assert stable_name(job) == stable_name(again.Job) == "app_twice:Job"
    assert find_class("app_twice:Job") is job
    assert find_class("app_twice:Late") is again.Late
