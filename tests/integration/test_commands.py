"""What a person can do to a run from outside, in every state that it can be in."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from sqlalchemy import insert, update

from stepwell import InvalidTransition, Run, RunNotFound, RunState
from stepwell.ids import new_run_id
from stepwell.states import ATTENTION, VERBS
from stepwell.store.commands import Answer
from stepwell.store.database import AnswerLost
from stepwell.store.schema import executions, runs
from tests.integration.store.rig import at_once
from tests.integration.town import HOUR, NOON, SECOND, Forever, Parcel, Plain, Town

DONE, REQUESTED, UNCHANGED = Answer.DONE, Answer.REQUESTED, Answer.UNCHANGED

GIVE: dict[str, Callable[[Run], Answer]] = {
    "pause": lambda run: run.pause("lunch", by="ann"),
    "resume": lambda run: run.resume(by="ann"),
    "skip": lambda run: run.skip("not needed", by="ann"),
    "cancel": lambda run: run.cancel("enough", by="ann"),
    "reschedule": lambda run: run.reschedule(HOUR),
}

OUTCOMES: dict[tuple[str, RunState], tuple[Answer, str]] = {
    ("pause", RunState.READY): (DONE, "paused"),
    ("pause", RunState.RUNNING): (REQUESTED, "running"),
    ("pause", RunState.WAITING): (DONE, "paused"),
    ("pause", RunState.AWAITING): (DONE, "paused"),
    ("pause", RunState.PAUSED): (UNCHANGED, "paused"),
    ("resume", RunState.READY): (UNCHANGED, "ready"),
    ("resume", RunState.RUNNING): (UNCHANGED, "running"),
    ("resume", RunState.WAITING): (UNCHANGED, "waiting"),
    ("resume", RunState.AWAITING): (UNCHANGED, "awaiting"),
    ("resume", RunState.PAUSED): (DONE, "ready"),
    ("resume", RunState.FAILED): (DONE, "ready"),
    ("skip", RunState.READY): (DONE, "ready"),
    ("skip", RunState.RUNNING): (REQUESTED, "running"),
    ("skip", RunState.WAITING): (DONE, "ready"),
    ("skip", RunState.AWAITING): (DONE, "ready"),
    ("skip", RunState.PAUSED): (DONE, "ready"),
    ("skip", RunState.FAILED): (DONE, "ready"),
    ("cancel", RunState.READY): (DONE, "canceled"),
    ("cancel", RunState.RUNNING): (REQUESTED, "running"),
    ("cancel", RunState.WAITING): (DONE, "canceled"),
    ("cancel", RunState.AWAITING): (DONE, "canceled"),
    ("cancel", RunState.PAUSED): (DONE, "canceled"),
    ("cancel", RunState.FAILED): (DONE, "canceled"),
    ("cancel", RunState.CANCELED): (UNCHANGED, "canceled"),
    ("reschedule", RunState.READY): (DONE, "waiting"),
    ("reschedule", RunState.WAITING): (DONE, "waiting"),
}
"""What comes of each verb in each state in which it works."""


def plain(town: Town, state: RunState = RunState.READY) -> Run:
    run = Plain.with_options(engine=town.well).start()
    town.bring(run, state)
    return run


def request(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.info().stop_request or "{}")
    return found


def test_the_table_of_outcomes_is_the_table_of_states() -> None:
    """Each verb has an outcome in exactly the states in which it is said to work."""
    assert {verb: {state for each, state in OUTCOMES if each == verb} for verb in GIVE} == {
        verb: set(VERBS[verb]) for verb in GIVE
    }


@pytest.mark.parametrize("verb", GIVE)
def test_a_verb_works_where_it_is_said_to(town: Town, verb: str) -> None:
    """In each allowed state it answers what happened and leaves the run so; elsewhere it says so."""
    for state in RunState:
        run = plain(town, state)
        before = run.info()
        if (verb, state) not in OUTCOMES:
            with pytest.raises(
                InvalidTransition, match=f"run {run.id} is {state}: it cannot {verb}"
            ) as caught:
                GIVE[verb](run)
            assert (caught.value.state, caught.value.verb) == (state, verb)
            assert run.info() == before
            continue
        answer, after = OUTCOMES[verb, state]
        assert GIVE[verb](run) == answer, (verb, state)
        row = run.info()
        assert row.state == after, (verb, state)
        if answer is UNCHANGED:
            assert row == before
        else:
            assert row.wakeups == before.wakeups + 1, "a park that has not seen it must be refused"
        assert (row.lane is not None) == (after == "ready")
        assert (row.lease_token is not None) == (after == "running")


@pytest.mark.parametrize("verb", GIVE)
def test_a_run_that_is_not_there_is_not_found(town: Town, verb: str) -> None:
    """A wrong id is an error that names it."""
    run = Run(town.well, new_run_id())
    with pytest.raises(RunNotFound, match=str(run.id)):
        GIVE[verb](run)


# -- the journal of what people do ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["pause", "cancel", "skip"])
@pytest.mark.parametrize("state", [RunState.READY, RunState.WAITING, RunState.AWAITING, *sorted(ATTENTION)])
def test_who_did_what_and_why_is_in_the_journal(town: Town, verb: str, state: RunState) -> None:
    """A command that acts at once leaves an entry; one that leads on from a stop does, too."""
    if (verb, state) not in OUTCOMES or OUTCOMES[verb, state][0] is not DONE:
        return
    run = plain(town, state)
    GIVE[verb](run)
    if verb == "skip" and state not in ATTENTION:
        # The entry of the step itself tells it, once a worker has come.
        assert run.steps == []
        return
    (row,) = run.steps
    assert (row.kind, row.name, row.state, row.finished_at) == ("command", verb, "completed", NOON)
    reason = {"pause": "lunch", "cancel": "enough", "skip": "not needed"}[verb]
    assert row.details == {"by": "ann", "from": state, "reason": reason}


def test_what_changes_nothing_is_not_noted(town: Town) -> None:
    """A run that stands there already has one entry for what was done once."""
    run = plain(town)
    for _ in range(3):
        run.pause(by="ann")
    for _ in range(3):
        run.cancel(by="bob")
    assert [row.name for row in run.steps] == ["pause", "cancel"]


def test_the_entry_commits_with_the_command(town: Town) -> None:
    """One transaction: a command that is undone leaves nothing behind."""
    run = plain(town)
    well = town.well
    with pytest.raises(ZeroDivisionError), well.database.begin() as connection:
        well.commands.cancel(connection, run.id, NOON, "enough", "ann")
        raise ZeroDivisionError
    assert (run.state, run.steps) == (RunState.READY, [])


# -- pause and resume -------------------------------------------------------------------------------------


def test_what_a_paused_run_was_waiting_for_is_kept(town: Town) -> None:
    """Its announced step stays in the journal; resumed, it is due at once and parks for what remains."""
    run = plain(town)
    row = town.claim(run)
    town.drive(row, RunState.WAITING)
    run.pause("lunch")
    assert (run.state, run.reason, run.info().wake_at) == (RunState.PAUSED, "lunch", None)
    town.clock.travel(SECOND)
    assert run.resume(by="ann") is DONE
    row = run.info()
    assert (row.state, row.reason, row.lane, row.due_at) == ("ready", None, "default", NOON + SECOND)

    paused, command = run.steps
    assert (paused.kind, paused.name) == ("command", "pause")
    assert (command.kind, command.name, command.state, command.outcome) == (
        "command",
        "resume",
        "completed",
        "success",
    )
    assert command.details == {"by": "ann", "from": "paused"}


def test_resuming_begins_anew(town: Town) -> None:
    """Lost workers in a row and the error of before are forgotten."""
    run = plain(town)
    town.claim(run)
    for _ in range(6):
        town.clock.travel(HOUR)
        town.recover()
        if run.state is RunState.WAITING:
            town.clock.travel(HOUR)
            town.promote()
            town.claim(run)
    assert (run.state, run.reason, run.info().recoveries) == (RunState.FAILED, "worker_lost", 6)
    run.resume()
    row = run.info()
    assert (row.state, row.recoveries, row.error_class, row.error_message) == ("ready", 0, None, None)


# -- requests to a run that is being driven ---------------------------------------------------------------


def test_cancel_beats_pause_beats_skip(town: Town) -> None:
    """A stronger request replaces a weaker one, and a weaker one changes nothing; repeating says so."""
    strength = ["skip", "pause", "cancel"]
    for first in range(3):
        for second in range(3):
            run = plain(town, RunState.RUNNING)
            assert GIVE[strength[first]](run) is REQUESTED
            bumped = run.info().wakeups
            answer = GIVE[strength[second]](run)
            assert answer is (REQUESTED if second >= first else UNCHANGED)
            assert request(run)["verb"] == strength[max(first, second)]
            assert run.info().wakeups == bumped + (second > first)


def test_a_request_tells_who_wants_what_and_why(town: Town) -> None:
    """Verb, reason, person, instant and the step that was current: whoever honours it can say so."""
    run = plain(town, RunState.RUNNING)
    run.skip("not needed", by="ann")
    assert request(run) == {
        "verb": "skip",
        "reason": "not needed",
        "by": "ann",
        "at": NOON.isoformat(),
        "step": "first",
    }


def test_resuming_withdraws_a_pause_and_nothing_else(town: Town) -> None:
    """A pause that was not honoured yet can be taken back; a cancel or a skip cannot."""
    run = plain(town, RunState.RUNNING)
    run.pause()
    assert (run.resume(), request(run)) == (DONE, {})
    for verb in ("skip", "cancel"):
        run = plain(town, RunState.RUNNING)
        GIVE[verb](run)
        assert run.resume() is UNCHANGED
        assert request(run)["verb"] == verb


@pytest.mark.parametrize(
    ("verb", "state", "reason", "journal"),
    [
        ("cancel", "canceled", "enough", [("first", "failed"), ("cancel", "completed")]),
        ("pause", "paused", "lunch", [("first", "failed"), ("pause", "completed")]),
        ("skip", "ready", None, [("first", "failed"), ("first", "skipped")]),
    ],
)
def test_a_request_is_honoured_at_the_next_boundary(
    town: Town, verb: str, state: str, reason: str | None, journal: list[tuple[str, str]]
) -> None:
    """What was asked of a run that somebody holds is done before its next step, journaled, and cleared."""
    run = plain(town)
    town.claim(run)
    GIVE[verb](run)
    town.clock.travel(HOUR)
    town.recover()
    town.promote()
    town.drive(town.claim(run))
    assert (run.state, run.reason, request(run)) == (state, reason, {})
    assert [(row.name, row.state) for row in run.steps] == journal
    told = run.steps[-1].details
    assert (told["by"], told["from"], told["asked_at"]) == ("ann", "running", NOON.isoformat())
    if verb == "skip":
        assert run.current_step == "second"


def test_a_request_outlives_pauses_and_lost_workers(town: Town) -> None:
    """A run that waits for its next worker with a request on it is not talked out of a stronger one."""
    run = plain(town, RunState.RUNNING)
    run.cancel("enough")
    town.clock.travel(timedelta(minutes=1))
    town.recover()
    assert run.state is RunState.WAITING
    assert [run.pause(), run.skip(), run.reschedule(HOUR)] == [UNCHANGED] * 3
    assert request(run)["verb"] == "cancel"
    town.promote()
    town.drive(town.claim(run))
    assert (run.state, run.reason) == (RunState.CANCELED, "enough")


# -- skip -------------------------------------------------------------------------------------------------


def test_a_skip_survives_a_pause(town: Town) -> None:
    """Skipped, then paused before a worker came, then resumed: the step is skipped all the same."""
    run = plain(town)
    run.skip()
    run.pause()
    run.resume()
    town.drive(town.claim(run))
    assert ("first", "skipped") in [(row.name, row.state) for row in run.steps]


def test_a_stopped_run_goes_on_behind_the_skipped_step(town: Town) -> None:
    """From failed and from paused: the step is left as skipped and the next one runs."""
    for state in (RunState.FAILED, RunState.PAUSED):
        run = plain(town, state)
        run.skip("not needed", by="ann")
        town.drive(town.claim(run))
        if run.state is RunState.READY:
            town.drive(town.claim(run))
        assert run.state is RunState.COMPLETED
        assert [(row.name, row.state) for row in run.steps] == [
            ("skip", "completed"),
            ("first", "skipped"),
            ("second", "completed"),
        ]


def test_there_is_nothing_to_skip_past_the_last_step(town: Town) -> None:
    """A run without a current step is unchanged."""
    run = plain(town)
    row = town.claim(run)
    object.__setattr__(row, "current_step", None)
    town.drive(row, RunState.WAITING)
    before = run.info()
    assert before.current_step is None
    assert run.skip() is UNCHANGED
    assert run.info() == before


# -- cancel -----------------------------------------------------------------------------------------------


def test_a_canceled_run_is_over(town: Town) -> None:
    """It has ended now, its identity is free, and what was scheduled is called off in the journal."""
    run = Parcel.with_options(engine=town.well).start(number=1)
    row = town.claim(run)
    announce(town, row.id)
    town.drive(row, RunState.WAITING)
    town.clock.travel(SECOND)
    run.cancel("enough")

    row = run.info()
    assert (row.finished_at, row.changed_at, row.active_key, row.wake_at) == (NOON + SECOND,) * 2 + (
        None,
        None,
    )
    announced, _ = run.steps
    assert (announced.state, announced.outcome, announced.finished_at) == (
        "canceled",
        "canceled",
        NOON + SECOND,
    )
    assert Parcel.with_options(engine=town.well).start(number=1).created


def announce(town: Town, run_id: UUID, details: str | None = None) -> None:
    """Note in the journal when the next step will run, as a retry does."""
    row: dict[str, Any] = {"run_id": run_id, "position": 1, "name": "send", "kind": "step", "attempt": 1}
    row |= {"state": "scheduled", "scheduled_for": NOON + HOUR, "details": details}
    with town.well.database.begin() as connection:
        connection.execute(insert(executions), row)


def test_an_identity_for_ever_outlives_a_cancel(town: Town) -> None:
    """A class that says so keeps the identity of what was called off."""
    run = Forever.with_options(engine=town.well).start(number=1)
    run.cancel()
    assert run.info().active_key is not None


def unanswered(town: Town, then: Callable[[], object] = lambda: None) -> Any:
    """The first commit is done, and its answer is lost; before the command is repeated, something happens."""
    database = town.well.database
    retrying, lost = database.retrying, [AnswerLost("the connection broke")]

    def broken(work: Any, **options: Any) -> Any:
        answer = retrying(work, **options)
        if lost:
            error = lost.pop()
            then()
            raise error
        return answer

    return patch.object(database, "retrying", broken)


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_command_whose_answer_was_lost_is_said_again(town: Town, verb: str) -> None:
    """It was done, and nobody was told: to do it again changes nothing, and is no error."""
    run = plain(town, RunState.WAITING)
    with unanswered(town):
        assert GIVE[verb](run) is UNCHANGED
    assert run.state == OUTCOMES[verb, RunState.WAITING][1]
    assert [row.name for row in run.steps] == [verb]


def test_a_cancel_that_is_said_again_tells_the_parent(town: Town) -> None:
    """Whoever waits for the run is looked after by whichever of the two is answered."""
    parent, run = plain(town), plain(town)
    with town.well.database.begin() as connection:
        connection.execute(update(runs).where(runs.c.id == run.id).values(parent_id=parent.id))
        done = [town.well.commands.cancel(connection, run.id, NOON, None, None) for _ in range(2)]
    assert [(each.answer, each.parent) for each in done] == [(DONE, parent.id), (UNCHANGED, parent.id)]


def test_a_skip_that_is_said_again_skips_one_step(town: Town) -> None:
    """A worker has honoured the first one already: the step after it was not meant."""
    run = plain(town, RunState.WAITING)
    with unanswered(town, then=lambda: town.drive(town.claim(run))):
        run.skip()
    assert run.current_step == "second"
    town.drive(town.claim(run))
    assert [(row.name, row.outcome) for row in run.steps] == [("first", "skipped"), ("second", "success")]


def test_a_rewind_that_is_said_again_is_done_once(town: Town) -> None:
    """The run goes on from that step already; a rewind to another one is refused as ever."""
    run = plain(town, RunState.FAILED)
    with unanswered(town):
        assert run.resume(from_step="second") is UNCHANGED
    assert [(row.kind, row.name) for row in run.steps] == [("command", "resume")]
    with pytest.raises(InvalidTransition):
        run.resume(from_step="first")
    town.drive(town.claim(run))
    with pytest.raises(InvalidTransition):
        run.resume(from_step="second")


# -- reschedule -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [HOUR, NOON + HOUR], ids=["duration", "instant"])
def test_a_parked_run_is_moved(town: Town, at: Any) -> None:
    """To an instant or by a duration from now, together with the step that is announced for it."""
    run = plain(town)
    row = town.claim(run)
    announce(town, row.id)
    town.drive(row, RunState.WAITING)
    assert run.reschedule(at) is DONE
    row = run.info()
    assert (row.state, row.wake_at, row.due_at, row.lane) == ("waiting", NOON + HOUR, None, None)
    assert [each.scheduled_for for each in run.steps] == [NOON + HOUR]
    assert run.steps[0].details == {"rescheduled": True}


def test_a_run_is_moved_to_now_by_default(town: Town) -> None:
    """Without an instant, or with one that has passed, it is due at once."""
    for at in (None, timedelta(0), NOON - HOUR):
        run = plain(town, RunState.WAITING)
        assert run.reschedule(at) is DONE
        row = run.info()
        assert (row.state, row.lane, row.due_at, row.wake_at) == ("ready", "default", NOON, None)


def test_what_else_an_announced_step_says_is_kept(town: Town) -> None:
    """The mark joins what is there, such as the deadline of a poll; what cannot be read is no obstacle."""
    for details, kept in (('{"deadline": 7}', {"deadline": 7}), ("{broken", {}), ("[3]", {})):
        run = plain(town)
        row = town.claim(run)
        announce(town, row.id, details)
        town.drive(row, RunState.WAITING)
        run.reschedule(HOUR)
        assert run.steps[0].details == {**kept, "rescheduled": True}


def test_an_instant_carries_its_zone(town: Town) -> None:
    """A naive datetime is refused: nobody can say which instant it means."""
    run = plain(town, RunState.WAITING)
    with pytest.raises(TypeError, match="aware"):
        run.reschedule(datetime(2030, 6, 1))


# -- at the same time -------------------------------------------------------------------------------------


def test_commands_at_one_moment_take_turns(town: Town) -> None:
    """Of eight cancels one ends the run and the others find it ended; nobody sees a half of it."""
    run = plain(town, RunState.WAITING)

    assert sorted(at_once(8, lambda _: run.cancel())) == [DONE] + [UNCHANGED] * 7
    assert len(run.steps) == 1


def test_a_worker_is_told_when_a_run_is_due(town: Town) -> None:
    """After the commit, and only where there is something to do."""
    heard: list[str] = []
    town.well.hub.listen(heard.append)
    run = plain(town)
    heard.clear()
    run.pause()
    assert heard == []
    run.resume()
    assert heard == ["default"]
