"""Queries: each condition narrows, and what is listed is what is acted upon."""

from __future__ import annotations

import threading

import pytest

from stepwell import Run, RunState
from stepwell.states import ATTENTION, LIVE, TERMINAL
from tests.integration.store.rig import Statements
from tests.integration.town import HOUR, SECOND, Greet, Parcel, Plain, Town


def plain(town: Town, state: RunState = RunState.READY) -> Run:
    run = Plain.with_options(engine=town.well).start()
    town.bring(run, state)
    return run


def one_of_each(town: Town) -> dict[RunState, Run]:
    return {state: plain(town, state) for state in RunState}


# -- which runs -------------------------------------------------------------------------------------------


def test_states_have_names_for_what_people_ask(town: Town) -> None:
    """Live runs go on by themselves, attention is for people, finished ones are over; any state will do."""
    runs = one_of_each(town)
    query = town.well.runs()
    for asked, states in ((query.live(), LIVE), (query.attention(), ATTENTION), (query.finished(), TERMINAL)):
        assert set(asked) == {runs[state] for state in states}
        assert asked.count() == len(states)
    for state, run in runs.items():
        assert query.in_state(state).all() == [run]
        assert query.in_state(str(state)).first() == run
    assert set(query.in_state("paused", "ready")) == {runs[RunState.PAUSED], runs[RunState.READY]}
    assert query.in_state().all() == []
    with pytest.raises(ValueError, match="asleep"):
        query.in_state("asleep")


def test_runs_of_one_class_or_of_all(town: Town) -> None:
    """By class, by its name, or everything."""
    parcel, other = Parcel.with_options(engine=town.well).start(number=1), plain(town)
    assert town.well.runs(Parcel).all() == [parcel]
    assert town.well.runs("town.Parcel").all() == [parcel]
    assert set(town.well.runs()) == {parcel, other}
    assert town.well.runs("town.Nobody").all() == []


def test_runs_about_a_record(town: Town) -> None:
    """Open and finished ones, and of no other record."""
    ada, bob = town.person("Ada"), town.person("Bob")
    greet = Greet.with_options(engine=town.well)
    first = greet.start(ada)
    first.cancel()
    second, _ = greet.start(ada), greet.start(bob)
    assert town.well.runs(Greet).for_hero(ada).oldest().all() == [first, second]
    assert town.well.runs(Greet).for_hero(ada).live().all() == [second]


def test_runs_at_a_step(town: Town) -> None:
    """Where a run stands is where it will go on."""
    runs = [plain(town) for _ in range(2)]
    runs[0].skip()
    town.drive(town.claim(runs[0]))
    assert town.well.runs().at_step("second").all() == [runs[0]]
    assert town.well.runs().at_step("first").all() == [runs[1]]


def test_the_open_run_with_a_key(town: Town) -> None:
    """The key is the value that was given or that ``unique_by`` names; types count, finished runs do not."""
    start = Parcel.with_options(engine=town.well).start
    over = start(number=1)
    over.cancel()
    one, text = start(number=1), start(number="1")
    named = Parcel.with_options(engine=town.well, key=("a", 2)).start(number=9)
    query = town.well.runs(Parcel)
    assert query.with_key(1).all() == [one]
    assert query.with_key("1").all() == [text]
    assert query.with_key(("a", 2)).all() == [named]
    assert query.with_key(9).all() == []


def test_runs_that_have_not_moved(town: Town) -> None:
    """Stuck is what has not changed its state for so long; a promotion and a claim are changes."""
    stuck = plain(town)
    sleeper = plain(town, RunState.WAITING)
    sleeper.reschedule(HOUR)
    town.clock.travel(HOUR)
    young = plain(town)
    query = town.well.runs()
    assert set(query.stuck_for(HOUR - SECOND)) == {stuck, sleeper}
    assert query.stuck_for(HOUR).all() == []
    town.promote()
    assert query.stuck_for(HOUR - SECOND).all() == [stuck]
    town.claim(stuck)
    assert query.stuck_for(SECOND).all() == []
    town.clock.travel(HOUR)
    assert set(query.stuck_for(SECOND)) == {stuck, sleeper, young}


def test_each_condition_narrows(town: Town) -> None:
    """Two conditions on the same thing hold both: what cannot be is found nowhere."""
    runs = one_of_each(town)
    query = town.well.runs()
    assert query.live().attention().all() == []
    assert query.live().in_state("paused", "ready").all() == [runs[RunState.READY]]
    assert query.in_state("paused").attention().all() == [runs[RunState.PAUSED]]
    assert query.at_step("first").at_step("second").count() == 0
    assert query.at_step("first").at_step("first").count() == len(runs)
    assert query.with_key(1).with_key(2).count() == 0
    town.clock.travel(HOUR)
    assert query.stuck_for(SECOND).stuck_for(2 * HOUR).count() == 0
    assert query.stuck_for(2 * HOUR).stuck_for(SECOND).count() == 0


# -- in which order, and how many -------------------------------------------------------------------------


def test_the_newest_come_first_unless_one_says_otherwise(town: Town) -> None:
    """Order is that of creation."""
    runs = [plain(town) for _ in range(5)]
    query = town.well.runs()
    assert query.all() == query.newest().all() == runs[::-1]
    assert query.oldest().all() == runs
    assert (query.first(), query.oldest().first()) == (runs[-1], runs[0])
    assert query.oldest().limit(2).all() == runs[:2]
    assert query.limit(0).all() == []
    assert query.limit(0).first() is None
    assert query.limit(2).count() == 5
    assert town.well.runs("town.Nobody").first() is None
    with pytest.raises(ValueError, match="-1"):
        query.limit(-1)


def test_a_query_is_a_value(town: Town) -> None:
    """Narrowing makes a new query; nothing is read before a result is asked for, and that is one read."""
    plain(town)
    query = town.well.runs()
    statements = Statements(town.well.database, thread=threading.current_thread().name)
    narrowed = query.live().at_step("first").oldest().limit(3)
    assert statements.sent == []
    assert [row.state for row in narrowed.infos()] == ["ready"]
    statements.stop()
    assert len(statements.sent) == 1
    assert query == town.well.runs()


def test_a_state_that_there_is_not_is_named_with_those_that_there_are(town: Town) -> None:
    """Who guesses a word learns the right ones from the message."""
    with pytest.raises(ValueError) as refused:
        town.well.runs().in_state("ready", "done")
    assert str(refused.value) == (
        "'done' is no state of a run; the states are ready, running, waiting, awaiting, paused, failed, "
        "completed, canceled"
    )


# -- what is done to all of them --------------------------------------------------------------------------


def test_a_verb_for_all_of_them(town: Town) -> None:
    """Each run that can is changed, and counted; those that cannot are passed over."""
    runs = one_of_each(town)
    query = town.well.runs()
    assert query.pause("lunch") == 4, "ready, waiting, awaiting, and a request to the running one"
    assert runs[RunState.READY].reason == "lunch"
    assert query.attention().resume() == 5
    assert query.skip() == 5, "not the running one, which is to pause"
    assert query.cancel("enough") == 6
    assert {run.state for run in query} == {RunState.CANCELED, RunState.COMPLETED, RunState.RUNNING}
    assert query.cancel() == 1, "the running one is asked again"


def test_a_verb_is_for_those_that_are_listed(town: Town) -> None:
    """With a limit it acts on the same runs that the query lists, in either order."""
    runs = [plain(town) for _ in range(6)]
    query = town.well.runs().live()
    listed = query.newest().limit(2).all()
    assert query.newest().limit(2).cancel() == 2
    assert listed == runs[:3:-1]
    assert [run.state for run in listed] == [RunState.CANCELED] * 2
    assert query.oldest().limit(1).cancel() == 1
    assert query.oldest().all() == runs[1:4]
    assert query.limit(0).cancel() == 0


def test_a_verb_ends_whatever_it_does(town: Town) -> None:
    """Runs that stay in the query after the verb are not taken again and again."""
    runs = [plain(town, RunState.RUNNING) for _ in range(3)]
    assert town.well.runs().live().pause() == 3
    assert [run.info().wakeups for run in runs] == [1, 1, 1]


def test_a_verb_goes_through_many_pages(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """More runs than are read at a time are all reached."""
    Plain.with_options(engine=town.well, at=HOUR).start_many([{}] * 7)
    monkeypatch.setattr("stepwell.engine.queries._PAGE", 3)
    assert town.well.runs().live().cancel() == 7
    assert town.well.runs().live().count() == 0
