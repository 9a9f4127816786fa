"""Errors of a step: which attempts follow, how they are counted, and where they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Backoff, Cancel, Fail, Pause, Retry, Skip, Workflow, resumable_step, step
from stepwell.execution.attempts import retries_by_label
from stepwell.execution.history import History
from stepwell.execution.journal import TransientConflict
from stepwell.execution.site import Site
from stepwell.states import ExecutionState, Outcome, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun, crash_at

NOW = timedelta()
MINUTE = timedelta(minutes=1)


class Script:
    """What a step does, attempt by attempt: raises the errors one after the other, then succeeds."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.bodies = 0

    def play(self) -> None:
        self.bodies += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def scripted(*errors: BaseException | None, policies: Any = (), **options: Any) -> tuple[MemoryRun, Script]:
    """A run whose first step raises these errors, one each attempt."""
    script = Script(*errors)
    of_class = policies

    class Order(Workflow[None]):
        policies = of_class

        @step(**options)
        def pack(self) -> None:
            self.context["attempts"] = self.context.get("attempts", 0) + 1
            self.session.append("packed")
            script.play()

        @step
        def ship(self) -> None: ...

    return MemoryRun(Order), script


def many(count: int, make: Callable[[], BaseException] = ValueError) -> list[BaseException]:
    return [make() for _ in range(count)]


def test_without_a_policy_an_error_fails_the_run() -> None:
    """The run stops where it is, says what happened, keeps its identity, and nothing of the step is kept."""
    run, script = scripted(ValueError("no box"))
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.error_message) == ("ValueError", "no box")
    assert run.current_step == "pack"
    assert not run.identity_is_free
    assert (run.memory, run.ledger) == ({}, [])
    row = run.row("pack")
    assert (row.state, row.outcome, row.error_class) == (ExecutionState.FAILED, Outcome.FAILED, "ValueError")
    assert "raise error\nValueError: no box" in str(row.traceback)
    assert script.bodies == 1


def test_a_failed_run_goes_on_where_it_stopped() -> None:
    """Resumed, the step that failed runs again and the ones before it do not."""
    run, script = scripted(ValueError("no box"))
    run.drive()
    run.resume()
    run.drive()

    assert run.story == ["pack failed", "pack success", "ship success"]
    assert run.error_class is None
    assert script.bodies == 2


def test_attempts_counts_the_bodies() -> None:
    """``attempts=3`` runs the body three times, the first time included."""
    run, script = scripted(*many(9), on_exception=Retry(attempts=3, wait=NOW))
    run.drive()

    assert script.bodies == 3
    assert run.story == ["pack retried", "pack retried", "pack failed"]
    assert [row.attempt for row in run.journal] == [1, 2, 3]
    assert run.reason == "gave up after 3 attempts (retry on *)"


def test_a_retry_without_a_wait_runs_on_in_the_same_activation() -> None:
    """It costs one write, no park and no claim."""
    run, _ = scripted(*many(2), on_exception=Retry(attempts=3, wait=NOW))
    run.drive()

    assert run.activations == 1
    assert run.is_over_as(RunState.COMPLETED)


def test_a_retry_waits_as_long_as_its_policy_says() -> None:
    """Parked for the wait, the run announces its next attempt; what the failed one wrote is undone."""
    run, _ = scripted(*many(1), on_exception=Retry(attempts=3, wait=MINUTE))
    run.activate()

    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert run.wake_at == START + MINUTE
    announced = run.row("pack")
    assert (announced.state, announced.attempt, announced.scheduled_for) == (
        ExecutionState.SCHEDULED,
        2,
        START + MINUTE,
    )
    run.drive()
    assert (run.memory, run.ledger) == ({"attempts": 1}, ["packed"])


def test_backoff_grows_from_attempt_to_attempt_over_activations() -> None:
    """The journal says how often it was tried: delays grow although each attempt is another activation."""
    policy = Retry(attempts=6, backoff=Backoff(base=MINUTE, factor=2, cap=5 * MINUTE, jitter=0))
    run, _ = scripted(*many(5), on_exception=policy)
    waits = []
    run.activate()
    while run.state is RunState.WAITING:
        waits.append(run.waits)
        run.wake()
        run.activate()

    assert waits == [MINUTE, 2 * MINUTE, 4 * MINUTE, 5 * MINUTE, 5 * MINUTE]
    assert run.is_over_as(RunState.COMPLETED)


@pytest.mark.parametrize(
    ("then", "state", "story"),
    [
        ("fail", RunState.FAILED, "pack failed"),
        ("pause", RunState.PAUSED, "pack paused"),
        ("cancel", RunState.CANCELED, "pack canceled"),
        ("skip", RunState.COMPLETED, "pack skipped"),
    ],
)
def test_what_happens_when_the_attempts_ran_out(then: Any, state: RunState, story: str) -> None:
    """``then=`` says it; the row of the last attempt has the error in any case."""
    run, script = scripted(*many(9), on_exception=Retry(attempts=2, wait=NOW, then=then))
    run.drive()

    assert script.bodies == 2
    assert run.state is state
    assert run.story[:2] == ["pack retried", story]
    assert run.journal[1].error_class == "ValueError"
    assert run.ledger == []


@pytest.mark.parametrize(
    ("policy", "state", "story"),
    [
        (Skip(ValueError), RunState.COMPLETED, "pack skipped"),
        (Pause(ValueError), RunState.PAUSED, "pack paused"),
        (Cancel(ValueError), RunState.CANCELED, "pack canceled"),
        (Fail(ValueError), RunState.FAILED, "pack failed"),
    ],
)
def test_each_policy_ends_the_attempt_its_own_way(policy: Any, state: RunState, story: str) -> None:
    """The error is recorded, what the body wrote is undone, and the run stands where the policy says."""
    run, script = scripted(ValueError("no box"), on_exception=policy)
    run.drive()

    assert script.bodies == 1
    assert run.state is state
    assert run.story[0] == story
    assert (run.journal[0].error_class, run.journal[0].error_message) == ("ValueError", "no box")
    assert (run.memory, run.ledger) == ({}, [])


def test_a_stop_for_a_person_says_the_error_on_the_run() -> None:
    """Whoever looks at a paused run sees why, without reading its journal."""
    run, _ = scripted(ValueError("no box"), on_exception=Pause(ValueError))
    run.drive()

    assert (run.error_class, run.error_message) == ("ValueError", "no box")
    assert run.reason == "pause on ValueError"


def test_the_class_answers_what_the_step_does_not() -> None:
    """The step's policies come first; what none of them fits goes to the class's."""
    run, _ = scripted(
        OSError(), ValueError(), on_exception=Retry(OSError, wait=NOW), policies=[Skip(ValueError)]
    )
    run.drive()

    assert run.story == ["pack retried", "pack skipped", "ship success"]


def test_attempts_are_counted_per_policy() -> None:
    """Two policies of a step have counts of their own, told apart by their errors."""
    policies = [Retry(OSError, attempts=4, wait=NOW), Retry(ValueError, attempts=4, wait=NOW)]
    run, script = scripted(OSError(), ValueError(), OSError(), on_exception=policies)
    run.drive()

    assert script.bodies == 4
    assert run.is_over_as(RunState.COMPLETED)
    labels = [json.loads(row.details or "{}").get("policy") for row in run.journal[:3]]
    assert labels == ["OSError", "ValueError", "OSError"]


def test_all_policies_of_a_list_together_keep_to_the_smallest() -> None:
    """Errors that alternate do not add up to more bodies than the smallest ``attempts`` of the list."""
    policies = [Retry(OSError, attempts=3, wait=NOW), Retry(ValueError, attempts=30, wait=NOW)]
    run, script = scripted(ValueError(), OSError(), ValueError(), ValueError(), on_exception=policies)
    run.drive()

    assert script.bodies == 3
    assert run.state is RunState.FAILED


def test_a_new_deploy_moves_no_count() -> None:
    """Counts hang on the errors' names, not on places in a list: policies may be added and reordered."""
    run, script = scripted(*many(9), on_exception=Retry(ValueError, attempts=3, wait=MINUTE))
    run.activate()

    other, _ = scripted(on_exception=[Skip(OSError), Retry(ValueError, attempts=3, wait=MINUTE)])
    run.workflow = other.workflow

    def raising(workflow: Any) -> None:
        script.play()

    object.__setattr__(run.workflow.plan.steps[0], "function", raising)
    run.drive()

    assert script.bodies == 3
    assert run.state is RunState.FAILED


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_forgets_no_attempt(moment: str) -> None:
    """The count is in the journal: a worker that dies does not give the step its attempts back."""
    run, script = scripted(*many(9), on_exception=Retry(attempts=3, wait=MINUTE))
    crash_at(run, 1, moment)
    run.drive()

    lost = moment == "before"
    assert run.state is RunState.FAILED
    assert script.bodies == 3 + lost
    assert run.story.count("pack retried") == 2


def test_resume_begins_the_count_anew() -> None:
    """A person who resumes gives the step its attempts again."""
    run, script = scripted(*many(5), on_exception=Retry(attempts=3, wait=NOW))
    run.drive()
    assert (run.state, script.bodies) == (RunState.FAILED, 3)

    run.resume()
    run.drive()
    assert (run.state, script.bodies) == (RunState.COMPLETED, 6)
    assert [row.attempt for row in run.journal if row.name == "pack"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("verb", "counted"), [("pause", 1), ("cancel", 1), ("resume", 0), ("skip", 0)])
def test_only_who_lets_a_run_go_on_begins_the_count_anew(verb: str, counted: int) -> None:
    """A pause and a cancel are in the journal as well, and leave the count as it is."""
    run, _ = scripted(*many(1), on_exception=Retry(attempts=3, wait=MINUTE))
    run.activate()
    run._command(verb)
    site = Site(run.workflow.plan.steps[0])

    assert retries_by_label(History(run.journal), site).total() == counted


def test_what_a_long_step_has_done_begins_no_count_anew() -> None:
    """Its attempts are those of the whole step, however many items and executions lie between two errors."""
    failed: list[int] = []

    class Rows(Workflow[None]):
        @resumable_step(max_iterations=2, on_exception=Retry(ConnectionError, attempts=3, wait=NOW))
        def walk(self) -> None:
            for row in self.cursor.iterate(range(9)):
                self.session.append(row)
                if row in (1, 4, 7) and row not in failed:
                    failed.append(row)
                    raise ConnectionError

    run = MemoryRun(Rows).drive()
    assert run.state is RunState.FAILED
    assert run.ledger == list(range(7))
    assert [row.outcome for row in run.journal].count(Outcome.CONTINUED) == 2

    run.resume()
    run.drive()
    assert run.state is RunState.COMPLETED
    assert run.ledger == list(range(9))


def test_a_steps_own_retries_use_up_no_policys_attempts() -> None:
    """A step that polls with ``self.retry()`` still has all attempts for its errors."""
    polls = iter(range(50))

    class Order(Workflow[None]):
        @step(on_exception=Retry(OSError, attempts=2, wait=NOW))
        def pack(self) -> None:
            poll = next(polls)
            if poll < 20:
                self.retry()
            if poll == 20:
                raise OSError

    run = MemoryRun(Order).drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert run.story.count("pack retried") == 21


def test_each_step_has_its_own_count() -> None:
    """What one step used up is not missing from the next."""
    bodies = []

    class Order(Workflow[None]):
        policies = [Retry(attempts=2, wait=NOW)]

        @step
        def pack(self) -> None:
            bodies.append("pack")
            if bodies.count("pack") < 2:
                raise ValueError

        @step
        def ship(self) -> None:
            bodies.append("ship")
            if bodies.count("ship") < 2:
                raise ValueError

    assert MemoryRun(Order).drive().is_over_as(RunState.COMPLETED)
    assert bodies == ["pack", "pack", "ship", "ship"]


def test_details_of_another_making_count_as_blanket() -> None:
    """A row whose details cannot be read still counts: nothing is retried for ever because of it."""
    run, script = scripted(*many(9), on_exception=Retry(attempts=3, wait=MINUTE))
    run.activate()
    object.__setattr__(run.rows[1], "details", "not JSON")
    run.drive()

    assert script.bodies == 3


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), GeneratorExit()])
def test_an_error_that_ends_processes_does_not_strand_a_run(error: BaseException) -> None:
    """``sys.exit()`` in a step is an error of that step: journaled, and nothing is left running."""
    run, script = scripted(error)
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == type(error).__name__
    assert script.bodies == 1


def test_blanket_policies_are_for_exceptions() -> None:
    """A blanket Retry leaves ``sys.exit()`` alone; a policy that names it does not."""
    run, _ = scripted(SystemExit(), on_exception=Retry(wait=NOW))
    assert run.drive().state is RunState.FAILED

    run, _ = scripted(SystemExit(), on_exception=Retry(SystemExit, wait=NOW))
    assert run.drive().is_over_as(RunState.COMPLETED)


def test_a_conflict_in_the_database_is_nobodys_error() -> None:
    """What the database undoes for reasons of its own is done again: no row, no policy, no attempt."""
    run, script = scripted(on_exception=Fail())
    run.conflicts = 3
    run.drive()

    assert script.bodies == 4
    assert run.story == ["pack success", "ship success"]
    assert (run.memory, run.ledger) == ({"attempts": 1}, ["packed"])


def test_conflicts_without_end_are_an_error() -> None:
    """After ten of them the step has failed, with what the database said."""
    run, script = scripted(on_exception=Retry(attempts=99, wait=NOW))
    run.conflicts = 99
    run.drive()

    assert script.bodies == 11
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.error_message) == ("RuntimeError", "deadlock detected")
    assert run.ledger == []


def test_a_conflict_cannot_be_faked() -> None:
    """The engine's own exceptions are not part of the interface; raised by a body they rerun it, bounded."""
    run, script = scripted(*many(99, TransientConflict))
    run.drive()

    assert script.bodies == 11
    assert run.state is RunState.FAILED


@pytest.mark.parametrize("when", ["flush", "commit"])
@pytest.mark.parametrize(
    ("policy", "story"),
    [(Retry(wait=NOW), ["pack retried", "pack success"]), (Skip(), ["pack skipped"]), ((), ["pack failed"])],
)
def test_what_the_database_refuses_is_an_error_of_the_step(when: str, policy: Any, story: list[str]) -> None:
    """A constraint that the step's writes break goes through its policies, at the flush and at the commit."""
    script = Script()

    class Order(Workflow[None]):
        @step(on_exception=policy)
        def pack(self) -> None:
            script.bodies += 1
            refused = script.bodies == 1 and when == "flush"
            self.session.append(ValueError("duplicate key") if refused else "packed")

    run = MemoryRun(Order)
    run.refuses_commit = ValueError("duplicate key") if when == "commit" else None
    run.drive()

    assert run.story == story
    assert run.journal[0].error_message == "duplicate key"
    assert run.ledger == (["packed"] if "pack success" in story else [])
