"""``self.context``: what a step leaves for the next one is committed with it, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Retry, TooLarge, Unstorable, Workflow, step
from stepwell.definition.context import LooseContext
from stepwell.execution.context import CONTEXT_VALUE_LIMIT, Context
from stepwell.serialization import Codec
from stepwell.states import Reason, RunState
from tests.unit.execution.memory import MemoryRun, crash_at

CODEC = Codec()


class Steps(Workflow[None]):
    """Two steps that do what the test says, with the workflow in hand."""

    @step(on_exception=Retry(KeyError, wait=timedelta(hours=1)))
    def first(self) -> None:
        self.args["first"](self)

    @step
    def second(self) -> None:
        self.args["second"](self)


def run_with(first: Callable[[Any], Any], second: Callable[[Any], Any] = lambda self: None) -> MemoryRun:
    return MemoryRun(Steps, args={"first": first, "second": second})


def test_a_step_leaves_things_for_the_next_one() -> None:
    """Across an activation, and across a restart in between."""
    found: list[Any] = []
    for crash in (False, True):
        run = run_with(
            lambda self: self.context.update(name="Ada", n=1), lambda self: found.append(dict(self.context))
        )
        if crash:
            crash_at(run, 0, "after")
        run.drive()

    assert found == [{"name": "Ada", "n": 1}] * 2


def test_changes_are_committed_with_their_step() -> None:
    """In the very write that records the step, and in no other."""
    contexts: list[Any] = []
    run = run_with(lambda self: self.context.update(a=1), lambda self: None)
    run.at_boundary = lambda moment: moment == "with" or contexts.append((moment, len(run.rows), run.memory))
    run.activate()

    assert contexts[:2] == [("before", 0, {}), ("after", 1, {"a": 1})]


def test_a_journal_row_has_what_its_step_changed() -> None:
    """Only what was set or deleted, so that a replay can do the same again."""
    run = run_with(
        lambda self: self.context.update(a=1, b=[1], c=2),
        lambda self: (self.context.update(a=2), self.context.pop("c"), self.context.update(b=[1])),
    ).drive()

    deltas = [json.loads(row.context_delta or "null") for row in run.journal]
    assert deltas == [
        {"set": {"a": 1, "b": [1], "c": 2}, "gone": []},
        {"set": {"a": 2}, "gone": ["c"]},
    ]
    assert run.memory == {"a": 2, "b": [1]}


def test_a_step_that_changes_nothing_stores_nothing() -> None:
    """Reading, and writing the same values again, is no change."""
    run = run_with(
        lambda self: self.context.update(a=[1, {"b": 2}]),
        lambda self: (self.context["a"], self.context.update(a=[1, {"b": 2}])),
    ).drive()

    assert run.journal[1].context_delta is None


def test_a_change_deep_inside_is_found() -> None:
    """A list that is appended to, a dict in a dict: what was changed in place is stored like the rest."""
    run = run_with(
        lambda self: self.context.update(items=[{"n": 1}]),
        lambda self: (self.context["items"].append(2), self.context["items"][0].update(n=3)),
    ).drive()

    assert run.memory == {"items": [{"n": 3}, 2]}


def test_what_setdefault_answers_is_what_is_kept() -> None:
    """``setdefault("items", []).append(...)`` is not lost the first time."""
    run = run_with(
        lambda self: self.context.setdefault("items", []).append(1),
        lambda self: self.context.setdefault("items", []).append(2),
    ).drive()

    assert run.memory == {"items": [1, 2]}


def test_a_later_change_of_ones_own_object_does_not_reach_in() -> None:
    """The context keeps a copy: what the author does to the original afterwards is the author's."""

    def first(self: Any) -> None:
        items = [1]
        self.context["items"] = items
        items.append(2)

    assert run_with(first).drive().memory == {"items": [1]}


def raising(error: Exception) -> Callable[[Any], None]:
    def body(self: Any) -> None:
        self.context["a"] = 1
        self.context["list"] = [1]
        raise error

    return body


def test_an_error_undoes_the_changes() -> None:
    """Context and step are one: a step that failed has changed nothing."""
    run = run_with(raising(ValueError())).drive()
    assert (run.state, run.memory) == (RunState.FAILED, {})


def test_a_retry_begins_with_the_context_of_before() -> None:
    """The second attempt sees nothing of the first, in the same activation too."""
    seen: list[Any] = []

    def first(self: Any) -> None:
        seen.append(dict(self.context))
        self.context["n"] = self.context.get("n", 0) + 1
        if len(seen) < 3:
            self.retry(None if len(seen) == 1 else timedelta(hours=1))

    run = run_with(first).drive()

    assert seen == [{}, {}, {}]
    assert run.memory == {"n": 1}


def test_a_deep_change_is_undone_too() -> None:
    """What was changed in place by a failed attempt is as it was."""

    def second(self: Any) -> None:
        self.context["items"].append(2)
        if run.row("first") is run.journal[-1]:
            self.retry()

    run = run_with(lambda self: self.context.update(items=[1]), second)
    run.drive()

    assert run.memory == {"items": [1, 2]}


class Money:
    """Something that is not JSON."""


REFUSED: dict[str, Any] = {
    "object": Money(),
    "tuple": (1, 2),
    "set": {1},
    "bytes": b"x",
    "timedelta": timedelta(1),
    "not a number": float("nan"),
    "keys": {1: 2},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_json_is_refused_where_it_is_given(what: str) -> None:
    """Not converted, and not found out later: the assignment raises, with the path, and the step fails."""
    run = run_with(lambda self: self.context.update({"order": {"lines": [REFUSED[what]]}})).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert str(run.error_message).startswith("context['order']")
    assert "['lines'][0]" in str(run.error_message)


def test_what_is_hidden_deep_inside_is_refused_at_the_end_of_the_step() -> None:
    """Put in by a later change in place, it is found when the step is to be recorded: nothing is kept."""

    def first(self: Any) -> None:
        self.context["order"] = {"lines": []}
        self.session.append("packed")
        self.context["order"]["lines"].append(Money())

    run = run_with(first).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "['lines'][0]" in str(run.error_message)
    assert (run.memory, run.ledger) == ({}, [])


@pytest.mark.parametrize("verb", ["skip", "cancel", "finish"])
def test_a_verb_cannot_keep_what_cannot_be_stored(verb: str) -> None:
    """A step that leaves by a verb is held to the same."""

    def first(self: Any) -> None:
        self.context["order"] = []
        self.context["order"].append(Money())
        getattr(self, verb)()

    run = run_with(first).drive()
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)


def test_a_refusal_can_be_caught() -> None:
    """The author may store something else instead; the context is as before."""

    def first(self: Any) -> None:
        try:
            self.context["order"] = Money()
        except Unstorable:
            self.context["order"] = "see the table"

    assert run_with(first).drive().memory == {"order": "see the table"}


def test_a_value_has_sixteen_kibibytes() -> None:
    """Each value for itself; the message says how large it was, and several may fill it."""
    fits = "x" * (CONTEXT_VALUE_LIMIT - 2)
    run = run_with(lambda self: self.context.update(a=fits, b=fits)).drive()
    assert len(run.memory["a"]) == CONTEXT_VALUE_LIMIT - 2

    refused = run_with(lambda self: self.context.update(a=fits + "x")).drive()
    assert refused.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert refused.error_class == "stepwell.errors.TooLarge"
    assert "16,385 bytes" in str(refused.error_message)


def test_a_letter_beyond_ascii_counts_by_its_bytes_in_utf8() -> None:
    """And not by those of its escape, in which it is stored."""
    fits = "ü" * (CONTEXT_VALUE_LIMIT // 2 - 1)
    assert run_with(lambda self: self.context.update(a=fits)).drive().memory == {"a": fits}

    refused = run_with(lambda self: self.context.update(a=fits + "ü")).drive()
    assert "16,386 bytes" in str(refused.error_message)


def test_a_value_that_grows_too_large_in_place_is_found() -> None:
    """At the end of the step at the latest."""

    def second(self: Any) -> None:
        self.context["a"].extend(["x" * 100] * 200)

    run = run_with(lambda self: self.context.update(a=[]), second).drive()

    assert run.error_class == "stepwell.errors.TooLarge"
    assert run.memory == {"a": []}


def test_names_are_texts() -> None:
    """A number as a name would come back as a text: it is refused."""
    run = run_with(lambda self: self.context.update({1: 2})).drive()
    assert "a context's names are texts; got 1" in str(run.error_message)


def test_a_context_is_a_mapping() -> None:
    """It reads and writes like a dict."""
    context = Context(None, CODEC)
    context.update(a=1, b=[2])
    context.setdefault("c", 3)
    del context["a"]

    assert "b" in context
    assert "a" not in context
    assert list(context) == ["b", "c"]
    assert len(context) == 2
    assert context.get("a", "none") == "none"
    assert context == {"b": [2], "c": 3}
    assert repr(context) == "Context({'b': [2], 'c': 3})"
    with pytest.raises(KeyError):
        context["a"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(["", "a", "~", "\x00", "\ud800"]), JSON), max_size=5))
def test_any_json_comes_back_as_it_was(items: list[tuple[str, Any]]) -> None:
    """Whatever the names and values are, the marks of the storage itself among them."""
    context = Context(None, CODEC)
    for name, value in items:
        context[name] = value
    changes = context.changes()
    if changes is None:
        assert items == []
        return
    context.committed()

    again = Context(changes[0], CODEC)
    assert dict(again) == dict(items) == dict(context)
    assert again.changes() is None
    assert context.changes() is None


def test_true_and_one_are_different_values() -> None:
    """A change that Python calls equal is a change all the same."""
    context = Context('{"a":1}', CODEC)
    context["a"] = True
    changes = context.changes()

    assert changes is not None
    assert dict(Context(changes[0], CODEC))["a"] is True


def test_nothing_is_decoded_as_long_as_nobody_looks() -> None:
    """A step that does not use the context does not pay for it."""
    context = Context("no JSON at all", CODEC)
    assert context.changes() is None


def test_the_limit_is_said_on_the_error() -> None:
    """Facts are attributes: how large, and how large it may be."""
    with pytest.raises(TooLarge) as refused:
        Context(None, CODEC)["a"] = "x" * 20_000
    assert (refused.value.size, refused.value.limit) == (20_002, CONTEXT_VALUE_LIMIT)


def test_the_words_of_its_own() -> None:
    """``set_once`` answers whether it has set; None is a value; what is absent is no error."""
    for context in (Context('{"a":null}', CODEC), LooseContext(a=None)):
        assert context.set_once("a", 1) is False
        assert context.set_once("b", 2) is True
        assert context.fetch("a", 7) is None
        assert context.fetch("c", 7) == 7
        context.merge({"c": 3, "d": [4]})
        assert context.delete("c") == 3
        assert context.delete("c") is None
        assert context == {"a": None, "b": 2, "d": [4]}


def test_set_once_does_not_judge_what_it_leaves_out() -> None:
    """A value that could not be stored is none that is set."""
    context = Context('{"a":1}', CODEC)
    assert context.set_once("a", object()) is False
    with pytest.raises(Unstorable):
        context.set_once("b", object())
