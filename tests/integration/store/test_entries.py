"""Journal entries: written whole under the lease's token, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select

from stepwell.engine.engine import Stepwell
from stepwell.engine.leases import Lease
from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.execution.suspension import LeaseLost
from stepwell.ids import new_token
from stepwell.states import ExecutionState, Kind, Outcome, RunState
from stepwell.store.journal import show_body
from stepwell.store.mailbox import Message, insert_signal
from stepwell.store.reads import signals_of
from stepwell.store.rows import ExecutionRow
from tests.integration.store.rig import NOON, SECOND, Held, Rig, at_once, done, ledger, quiet_place

Write = Callable[[Rig, JournalEntry], Verdict]


def _grouped(rig: Rig, entry: JournalEntry) -> Verdict:
    return rig.database.write(entry)


def _in_a_transaction(rig: Rig, entry: JournalEntry) -> Verdict:
    return rig.do(lambda connection: rig.dialect.apply(connection, [entry])[0])


@pytest.fixture(params=[_grouped, _in_a_transaction], ids=["grouped", "in a transaction"])
def write(request: pytest.FixtureRequest) -> Write:
    """The two ways to write an entry: in a commit shared with others, and in a step's own transaction."""
    chosen: Write = request.param
    return chosen


def as_values(row: ExecutionRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def test_a_step_is_written_with_all_that_is_known_of_it(rig: Rig, write: Write) -> None:
    """Every field of an execution is read back as it was written, NULs and emoji in escaped text included."""
    held = rig.hold()
    full = Execution(
        position=1,
        name="Begrüßung 🌊",
        kind=Kind.STEP,
        state=ExecutionState.FAILED,
        outcome=Outcome.RETRIED,
        key="item-1",
        attempt=3,
        args_digest="a" * 64,
        result='{"text": "\\u0000\\ud800 100 % 🌊"}',
        context_delta='{"n": 1}',
        cursor="[1]",
        continues_from=9,
        scheduled_for=NOON - 2 * SECOND,
        started_at=NOON - SECOND,
        finished_at=NOON,
        error_class="builtins.ValueError",
        error_message="it's “broken” %s ?",
        traceback="Traceback …\n  line",
        details='{"label": "*"}',
    )
    assert write(rig, rig.entry(held, full)).accepted

    (row,) = rig.journal(held.id)
    written = {field.name: getattr(full, field.name) for field in fields(full)}
    expected = written | {"run_id": held.id, "superseded_at": None, "worker": "first"}
    assert as_values(row) == expected


def test_a_step_moves_the_run_on_and_leaves_the_rest(rig: Rig, write: Write) -> None:
    """A step writes where the run stands; lease, state and times stay, so that no index is touched."""
    held = rig.hold(reason=None, context='{"n": 1}')
    before = rig.row(held.id)
    rig.clock.travel(SECOND)
    assert write(rig, rig.entry(held, done(1), step="second")) == Verdict(True, 0, None)
    assert rig.row(held.id) == replace(before, current_step="second")


def test_context_is_written_when_it_changed(rig: Rig, write: Write) -> None:
    """An entry without a context keeps the one that is there."""
    held = rig.hold(context='{"n": 1}')
    write(rig, rig.entry(held, done(1)))
    assert rig.row(held.id).context == '{"n": 1}'
    write(rig, rig.entry(held, done(2), context='{"n": 2}'))
    assert rig.row(held.id).context == '{"n": 2}'
    write(rig, rig.entry(held, done(3), settlement=Settlement(RunState.WAITING, wake_at=NOON)))
    assert rig.row(held.id).context == '{"n": 2}'


def test_the_highest_version_stays_on_the_row(rig: Rig, write: Write) -> None:
    """Whoever drove the run with the newest class leaves its version; an older worker keeps it."""
    held = rig.hold(version=2)
    for number, (version, expected) in enumerate([(1, 2), (3, 3), (2, 3)]):
        assert write(rig, replace(rig.entry(held, done(number + 1)), version=version)).accepted
        assert rig.row(held.id).version == expected
    settling = rig.entry(held, settlement=Settlement(RunState.WAITING, wake_at=NOON))
    write(rig, replace(settling, version=4))
    assert rig.row(held.id).version == 4


@pytest.mark.parametrize("settles", [False, True], ids=["a step", "a settlement"])
def test_the_wrong_token_writes_nothing(rig: Rig, write: Write, settles: bool) -> None:
    """Without the run's token, or when it is not being driven, an entry is refused whole."""
    settlement = Settlement(RunState.COMPLETED, result="1", frees_identity=True) if settles else None
    ours = rig.hold(active_key="k" * 64)
    zombie = Held(ours.id, new_token())
    parked = rig.hold(state="waiting", active_key="l" * 64)
    unknown = Held(new_token(), new_token())
    before = [rig.row(ours.id), rig.row(parked.id)]

    for held in (zombie, parked, unknown):
        entry = rig.entry(held, done(1), step=None, context='{"n": 1}', settlement=settlement)
        assert write(rig, entry) == Verdict(accepted=False)
        assert rig.journal(held.id) == []
    assert [rig.row(ours.id), rig.row(parked.id)] == before


def test_an_accepted_entry_learns_what_is_asked_of_the_run(rig: Rig, write: Write) -> None:
    """Each write answers the counter and the request on the row, so that no step boundary needs a read."""
    held = rig.hold(wakeups=3)
    rig.do(lambda connection: rig.commands.pause(connection, held.id, rig.now, "lunch", None))
    verdict = write(rig, rig.entry(held, done(1)))
    assert (verdict.accepted, verdict.wakeups) == (True, 4)
    assert '"pause"' in (verdict.stop_request or "")
    assert write(rig, rig.entry(held, done(2))).wakeups == 4


# -- settlements --------------------------------------------------------------------------------------------

SETTLEMENTS = {
    "ready": (
        Settlement(RunState.READY, reason="interrupted", due_at=NOON, queue="mail", priority=7),
        {
            "state": "ready",
            "reason": "interrupted",
            "lane": "mail",
            "queue": "mail",
            "priority": 7,
            "due_at": NOON,
        },
    ),
    "ready in the same queue": (
        Settlement(RunState.READY, due_at=NOON),
        {"state": "ready", "lane": "default", "due_at": NOON},
    ),
    "waiting": (
        Settlement(RunState.WAITING, reason="timer", wake_at=NOON + SECOND, details='{"n": 1}'),
        {"state": "waiting", "reason": "timer", "wake_at": NOON + SECOND, "details": '{"n": 1}'},
    ),
    "awaiting for ever": (
        Settlement(RunState.AWAITING, reason="signal", seen_wakeups=0),
        {"state": "awaiting", "reason": "signal"},
    ),
    "awaiting with a deadline": (
        Settlement(RunState.AWAITING, wake_at=NOON + SECOND),
        {"state": "awaiting", "wake_at": NOON + SECOND},
    ),
    "paused": (
        Settlement(RunState.PAUSED, reason="lunch", answers_request=True),
        {"state": "paused", "reason": "lunch", "stop_request": None},
    ),
    "failed": (
        Settlement(RunState.FAILED, reason="step_failed", error_class="E", error_message="broken"),
        {"state": "failed", "reason": "step_failed", "error_class": "E", "error_message": "broken"},
    ),
    "completed": (
        Settlement(RunState.COMPLETED, result='"well"', frees_identity=True),
        {
            "state": "completed",
            "result": '"well"',
            "active_key": None,
            "open_branch": None,
            "finished_at": NOON,
        },
    ),
    "canceled, its identity kept for ever": (
        Settlement(RunState.CANCELED, reason="enough"),
        {"state": "canceled", "reason": "enough", "open_branch": None, "finished_at": NOON},
    ),
}


def test_a_settlement_gives_the_lease_back_and_sets_what_it_says(rig: Rig, write: Write) -> None:
    """The run is left as the settlement says, in the write of the entry; what it does not name stays."""
    left_over = {"error_class": "Old", "error_message": "old", "details": '{"old": 1}', "priority": 50}
    given_back = {"lease_token": None, "lease_expires_at": None, "lease_owner": None, "changed_at": NOON}
    cleared = {"reason": None, "error_class": None, "error_message": None, "current_step": None}
    for number, (name, (settlement, changes)) in enumerate(SETTLEMENTS.items()):
        held = rig.hold(
            active_key=f"{number:064}",
            open_branch="b",
            stop_request='{"verb": "skip"}',
            recoveries=2,
            due_at=None,
            changed_at=NOON - SECOND,
            **left_over,
        )
        before = rig.row(held.id)
        assert write(rig, rig.entry(held, step=None, settlement=settlement)).accepted
        assert rig.row(held.id) == replace(before, **(given_back | cleared | changes)), name


def test_a_settlement_can_carry_its_last_step(rig: Rig, write: Write) -> None:
    """The last step and the end are one write: losses in a row are forgotten, both rows are there."""
    held = rig.hold(recoveries=2)
    settlement = Settlement(RunState.WAITING, wake_at=NOON + SECOND)
    scheduled = Execution(2, "later", Kind.STEP, ExecutionState.SCHEDULED, scheduled_for=NOON + SECOND)
    assert write(rig, rig.entry(held, done(1), scheduled, step="later", settlement=settlement)).accepted
    assert [(row.position, row.state) for row in rig.journal(held.id)] == [(1, "completed"), (2, "scheduled")]
    assert (rig.row(held.id).recoveries, rig.row(held.id).current_step) == (0, "later")


def test_a_park_is_refused_when_something_came(rig: Rig, write: Write) -> None:
    """A park says which count it has seen; at any other nothing is written and the lease stays ours."""
    held = rig.hold(wakeups=5)
    before = rig.row(held.id)
    for seen in (4, 6, 0):
        park = Settlement(RunState.AWAITING, seen_wakeups=seen)
        assert write(rig, rig.entry(held, done(1), settlement=park)) == Verdict(accepted=False)
    assert (rig.row(held.id), rig.journal(held.id)) == (before, [])
    assert write(rig, rig.entry(held, done(1), settlement=replace(park, seen_wakeups=5))).accepted
    assert rig.row(held.id).state == "awaiting"


def test_a_wait_takes_its_signal_along(rig: Rig, write: Write) -> None:
    """The row of the wait and the signal's being read are one write: both are there, or neither."""
    held = rig.hold()
    message = Message(held.id, "paid", "1")
    signal_id = rig.do(lambda connection: insert_signal(connection, rig.dialect, message, NOON))
    waited = replace(done(4, "wait"), kind=Kind.SIGNAL)

    def reader() -> int | None:
        with rig.database.read() as connection:
            (signal,) = signals_of(connection, held.id)
        return signal.consumed_by

    zombie = Held(held.id, new_token())
    assert not write(rig, replace(rig.entry(zombie, waited), consumes=signal_id)).accepted
    assert reader() is None
    assert write(rig, replace(rig.entry(held, waited), consumes=signal_id)).accepted
    assert reader() == 4
    assert write(rig, replace(rig.entry(held, done(5)), consumes=signal_id)).accepted
    assert reader() == 4, "what was read stays with its reader"


# -- rows that are written twice ----------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [ExecutionState.SCHEDULED, ExecutionState.IN_PROGRESS])
def test_an_announced_row_is_finished_in_its_place(rig: Rig, write: Write, announced: ExecutionState) -> None:
    """A row that told what would happen becomes what has happened: its position stays, all else is anew."""
    held = rig.hold()
    before = Execution(1, "greet", Kind.STEP, announced, key="k", attempt=1, started_at=NOON, details="{}")
    after = replace(done(1, key="k"), attempt=2, result="7", started_at=NOON + SECOND, error_class="E")
    write(rig, rig.entry(held, before))
    write(rig, rig.entry(held, after))

    (row,) = rig.journal(held.id)
    assert (row.state, row.outcome, row.attempt, row.result) == ("completed", "success", 2, "7")
    assert (row.started_at, row.details, row.error_class) == (NOON + SECOND, None, "E")


def test_a_finished_row_is_never_overwritten(rig: Rig, write: Write) -> None:
    """What has happened stays what has happened, whatever comes later for the same position."""
    held = rig.hold()
    states = [
        ExecutionState.COMPLETED,
        ExecutionState.FAILED,
        ExecutionState.CANCELED,
        ExecutionState.SKIPPED,
    ]
    for position, state in enumerate(states, 1):
        write(rig, rig.entry(held, replace(done(position), state=state, result='"first"')))
    before = rig.journal(held.id)
    for position in range(1, 5):
        assert write(rig, rig.entry(held, done(position, "other", result='"second"'))).accepted
    assert rig.journal(held.id) == before


# -- several entries at once --------------------------------------------------------------------------------


def test_entries_of_one_commit_are_judged_each_for_itself(rig: Rig) -> None:
    """Of entries that share a transaction the accepted are written whole and the others not at all."""
    good, lost, parking, stale = rig.hold_many(4, wakeups=1)
    zombie = Held(lost.id, new_token())
    entries = [
        rig.entry(good, done(1), done(2)),
        rig.entry(zombie, done(1)),
        rig.entry(parking, done(1), settlement=Settlement(RunState.AWAITING, seen_wakeups=1)),
        rig.entry(stale, done(1), settlement=Settlement(RunState.AWAITING, seen_wakeups=0)),
    ]
    verdicts = rig.do(lambda connection: rig.dialect.apply(connection, entries))
    assert [verdict.accepted for verdict in verdicts] == [True, False, True, False]
    assert [len(rig.journal(held.id)) for held in (good, lost, parking, stale)] == [2, 0, 1, 0]
    assert [rig.row(held.id).state for held in (good, lost, parking, stale)] == [
        "running", "running", "awaiting", "running",
    ]  # fmt: skip


def test_threads_that_write_at_once_lose_nothing(rig: Rig) -> None:
    """Sixteen threads, ten steps each: every accepted entry is there, every zombie's is refused."""
    held = rig.hold_many(16)

    def drive(number: int) -> list[bool]:
        mine = held[number] if number % 4 else Held(held[number].id, new_token())
        return [rig.write(mine, done(position)).accepted for position in range(1, 11)]

    accepted = at_once(16, drive)
    assert accepted == [[number % 4 > 0] * 10 for number in range(16)]
    journals = [[row.position for row in rig.journal(each.id)] for each in held]
    assert journals == [list(range(1, 11)) if number % 4 else [] for number in range(16)]


@pytest.mark.parametrize("spoiled", [{"name": "x" * 300}, {"error_message": "\ud800"}, {"attempt": 2**70}])
def test_an_entry_that_cannot_be_stored_hurts_no_neighbour(rig: Rig, spoiled: dict[str, Any]) -> None:
    """What the database refuses of one thread is that thread's error; who shares its commit is not hurt."""
    held = rig.hold_many(8)

    def drive(number: int) -> str:
        mine = done(1, **spoiled) if number == 3 else done(1)
        try:
            return str(rig.write(held[number], mine).accepted)
        except Exception:
            return "an error"

    for _ in range(5):
        answers = at_once(8, drive)
        assert {answer for number, answer in enumerate(answers) if number != 3} == {"True"}


# -- with a step's own writes -------------------------------------------------------------------------------


def in_ledger(rig: Rig) -> int:
    with rig.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(ledger)).scalar_one())


def test_a_zombies_own_writes_go_with_its_entry(rig: Rig) -> None:
    """In a step's transaction a refused guard leaves nothing: neither the entry nor what the step wrote."""
    held = rig.hold()
    zombie = Held(held.id, new_token())

    def step(connection: Connection, mine: Held) -> bool:
        with connection.begin() as transaction:
            connection.execute(insert(ledger), {"n": 1})
            accepted = rig.dialect.apply(connection, [rig.entry(mine, done(1))])[0].accepted
            if not accepted:
                transaction.rollback()
        return accepted

    with rig.database.step() as connection:
        assert not step(connection, zombie)
        assert step(connection, held)
    assert (in_ledger(rig), len(rig.journal(held.id))) == (1, 1)


def test_a_zombies_step_is_undone_as_a_whole(rig: Rig) -> None:
    """Through a step's session, too: a worker whose lease was taken meanwhile leaves nothing, and learns it."""
    well = Stepwell(rig.url, clock=rig.clock, default=False)
    held = rig.hold()
    lease = Lease(held.id, held.token, 30.0)
    journal = StoreJournal(well, lease, quiet_place(), (), None, True)
    for number in (1, 2):
        scope = journal.open_scope()
        scope.session.execute(insert(ledger), {"n": number})
        if number == 1:
            assert journal.write([done(1)], current_step="next", scope=scope).accepted
            rig.set(held.id, lease_token=new_token())
        else:
            with pytest.raises(LeaseLost):
                journal.write([done(2)], current_step="next", scope=scope)
        scope.close()
    well.close()
    assert (in_ledger(rig), len(rig.journal(held.id)), lease.is_lost) == (1, 1, True)


def test_a_body_that_is_shown_never_hides_its_end(rig: Rig) -> None:
    """The heartbeat's row of a long body is written under the token, and never over a finished one."""
    held = rig.hold()
    body = Execution(1, "greet", Kind.STEP, ExecutionState.IN_PROGRESS, attempt=2, started_at=NOON)

    def show(token: Any, details: str | None = None) -> None:
        rig.do(lambda connection: show_body(connection, held.id, token, body, "first", details))

    show(new_token())
    assert rig.journal(held.id) == []
    show(held.token)
    show(held.token, '{"progress": {"done": 1, "total": 2}}')
    (row,) = rig.journal(held.id)
    assert (row.state, row.attempt, row.started_at, row.worker) == ("in_progress", 2, NOON, "first")
    assert row.details == '{"progress": {"done": 1, "total": 2}}'

    rig.write(held, done(1))
    finished = rig.journal(held.id)
    show(held.token, "{}")
    assert rig.journal(held.id) == finished


def test_a_body_that_run_has_called_tells_where_the_run_stands(rig: Rig) -> None:
    """Under the token. A declared run goes on from there, so that only the end of a step says it."""
    held = rig.hold()
    before = rig.row(held.id).current_step
    body = Execution(1, "ship", Kind.STEP, ExecutionState.IN_PROGRESS, started_at=NOON)
    for token, is_called, step in (
        (held.token, False, before),
        (new_token(), True, before),
        (held.token, True, "ship"),
    ):
        rig.do(lambda c, t=token, i=is_called: show_body(c, held.id, t, body, "w", None, is_called=i))
        assert rig.row(held.id).current_step == step
