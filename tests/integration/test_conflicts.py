"""Identity: one open run of each kind, whoever starts it, from however many transactions at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from stepwell import Run, RunAlreadyExists, RunState, Workflow, step
from stepwell.states import ATTENTION, TERMINAL
from tests.integration.store.rig import at_once, start_together, wait_until
from tests.integration.town import SECOND, Forever, Greet, Parcel, Person, Plain, Town

MODES = ["reject", "skip", "replace"]


def parcel(town: Town, number: object = 1, *, args: dict[str, Any] | None = None, **options: Any) -> Run:
    return Parcel.with_options(engine=town.well, **options).start(number=number, **(args or {}))


# -- what is the same -------------------------------------------------------------------------------------


def test_a_hero_has_one_open_run_of_a_class(town: Town) -> None:
    """By default a run is unique by its hero: another person's is another run, another class's as well."""
    ada, bob = town.person("Ada"), town.person("Bob")
    first = Greet.with_options(engine=town.well).start(ada)
    with pytest.raises(RunAlreadyExists) as caught:
        Greet.with_options(engine=town.well).start(ada)
    assert caught.value.run == first
    assert Greet.with_options(engine=town.well).start(bob) != first
    with town.session() as session:
        again = session.get(Person, ada.id)
        assert Greet.with_options(engine=town.well, on_conflict="skip").start(again) == first
    assert town.count() == 2


def test_keys_keep_their_types(town: Town) -> None:
    """1, "1" and None are three identities, and a key given by hand is another than an argument's."""
    numbers = [1, "1", None, "", 1.5, ("a", "b"), "ab", UUID(int=1), str(UUID(int=1))]
    runs = [parcel(town, number) for number in numbers]
    assert len({run.id for run in runs}) == len(numbers)
    for number, run in zip(numbers, runs, strict=True):
        assert parcel(town, number, on_conflict="skip") == run
    assert parcel(town, 2, key="by hand") != parcel(town, 2)
    with pytest.raises(RunAlreadyExists):
        parcel(town, 3, key="by hand")


def test_names_differ_by_case(town: Town) -> None:
    """Keys are compared by their bytes, whatever the database's collation says."""
    assert (
        parcel(town, "Straße")
        != parcel(town, "STRASSE")
        != parcel(town, "strasse")
        != parcel(town, "Strasse ")
    )
    assert town.count() == 4


def test_a_long_key_is_an_identity_like_any_other(town: Town) -> None:
    """Its text is shortened for people, and its digest tells it from all others."""
    long, other = "x" * 5000, "x" * 4999 + "y"
    run = parcel(town, long)
    assert parcel(town, other) != run
    assert parcel(town, long, on_conflict="skip") == run
    assert len(run.info().key or "") <= 255


def test_without_an_identity_runs_are_never_the_same(town: Town) -> None:
    """A class that says nothing and has no hero starts as often as one likes."""
    runs = [Plain.with_options(engine=town.well).start() for _ in range(3)]
    assert len(set(runs)) == 3
    assert {run.info().active_key for run in runs} == {None}


# -- the three modes --------------------------------------------------------------------------------------


def test_a_refusal_says_who_stands_there_and_what_to_do(town: Town) -> None:
    """The message names class, key, run and state, and the ways out; the run itself is an attribute."""
    first = parcel(town, 7)
    with pytest.raises(RunAlreadyExists) as caught:
        parcel(town, 7)
    assert str(caught.value) == (
        f"town.Parcel with number=7 exists already: run {first.id}, ready. "
        "Use on_conflict='skip' to get that run, 'replace' to cancel it, or another key=."
    )
    assert (caught.value.run, caught.value.run.created) == (first, False)


def test_a_refusal_names_the_identity_as_its_author_does(town: Town) -> None:
    """A hero by its class and primary key, a key as it was given; never the text or the digest that are stored."""
    ada = town.person()
    about = Greet.with_options(engine=town.well)
    about.start(ada)
    with pytest.raises(
        RunAlreadyExists, match=rf"^town.Greet about Person {ada.id} exists already: run .*, ready"
    ):
        about.start(ada)
    for key, words in (
        ("ada", "'ada'"),
        (7, "7"),
        (("ada", 7), r"\('ada', 7\)"),
        ((ada, 7), r"\(a Person, 7\)"),
        ("x" * 5000, f"'{'x' * 76}\\.\\.\\."),
    ):
        named = Plain.with_options(engine=town.well, key=key)
        named.start()
        with pytest.raises(RunAlreadyExists, match=f"^town.Plain with the key {words} exists already"):
            named.start()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("number", "size"), "with number=7, size='a'"),
        (("number", "hero"), "with number=7, about Person {ada}"),
        ("hero", "about Person {ada}"),
        (lambda number: number + 1, "with the identity 8"),
    ],
    ids=["arguments", "argument and hero", "hero", "function"],
)
def test_a_refusal_tells_what_a_class_is_unique_by(town: Town, names: Any, words: str) -> None:
    """The arguments that it names, with their values; of a function what it answered."""

    class Unique(Workflow[Person]):
        unique_by = names

        @step
        def send(self) -> None: ...

    ada = town.person()
    started = Unique.with_options(engine=town.well)
    started.start(ada, number=7, size="a")
    with pytest.raises(RunAlreadyExists) as caught:
        started.start(ada, number=7, size="a")
    assert str(caught.value).startswith(f"Unique {words.format(ada=ada.id)} exists already: run ")


def test_skip_answers_with_the_run_that_is_there(town: Town) -> None:
    """Of the same work: other arguments under the same identity are an error unless they may differ."""
    first = parcel(town, args={"weight": 3, "to": "Ada"})
    same = parcel(town, args={"to": "Ada", "weight": 3}, on_conflict="skip")
    assert (same, same.created, first.created) == (first, False, True)

    with pytest.raises(RunAlreadyExists, match=r"other arguments; same_args=False takes it all the same"):
        parcel(town, args={"weight": 4}, on_conflict="skip")
    assert parcel(town, args={"weight": 4}, on_conflict="skip", same_args=False) == first
    assert town.count() == 1


@pytest.mark.parametrize("mode", MODES)
def test_who_stands_in_the_way_is_who_is_open(town: Town, mode: Any) -> None:
    """Each open state holds the identity, stopped ones too; a run that is over frees it."""
    for number, state in enumerate(RunState):
        first = parcel(town, number)
        town.bring(first, state)
        if state in TERMINAL:
            assert parcel(town, number, on_conflict=mode) != first
        elif mode == "reject":
            with pytest.raises(RunAlreadyExists):
                parcel(town, number, on_conflict=mode)
        elif mode == "skip":
            assert parcel(town, number, on_conflict=mode) == first
        else:
            assert parcel(town, number, on_conflict=mode).created
            assert first.state == (RunState.RUNNING if state is RunState.RUNNING else RunState.CANCELED)


def test_an_identity_for_ever_is_used_once(town: Town) -> None:
    """It stays taken when the run is over; ``skip`` still answers with that run, and nothing replaces it."""
    start = Forever.with_options(engine=town.well).start
    for number, state in enumerate(sorted(TERMINAL | ATTENTION)):
        first = start(number=number)
        if state is RunState.CANCELED:
            first.cancel()
        elif state is RunState.COMPLETED:
            town.drive(town.claim(first))
        else:
            town.bring(first, state)
        assert first.state == state
        with pytest.raises(RunAlreadyExists):
            start(number=number)
        assert Forever.with_options(engine=town.well, on_conflict="skip").start(number=number) == first
        if state in TERMINAL:
            with pytest.raises(RunAlreadyExists, match=r"unique_for = 'ever'.*never free again"):
                Forever.with_options(engine=town.well, on_conflict="replace").start(number=number)


def test_a_batch_may_meet_others_and_itself(town: Town) -> None:
    """Of a batch each item is settled for itself, in order; the same identity twice is a conflict, too."""
    known = parcel(town, 2)
    start_many = Parcel.with_options(engine=town.well, on_conflict="skip").start_many
    runs = start_many([{"number": number} for number in (3, 2, 1, 3)])
    assert [run.created for run in runs] == [True, False, True, False]
    assert (runs[1], runs[3]) == (known, runs[0])
    assert town.count() == 3
    with pytest.raises(RunAlreadyExists):
        Parcel.with_options(engine=town.well).start_many([{"number": 9}, {"number": 9}])
    assert town.count() == 3


# -- replacing a run that is held -------------------------------------------------------------------------


def test_a_held_run_is_replaced_when_it_has_ended(town: Town) -> None:
    """The newcomer has the identity at once and waits; the old one is asked to end, and its end wakes it."""
    old = parcel(town)
    held = town.claim(old)
    new = parcel(town, on_conflict="replace")
    row = new.info()
    assert (row.state, row.reason, row.after_id, row.lane) == ("awaiting", "predecessor", old.id, None)
    assert row.wake_at == town.clock.now() + 30 * SECOND
    assert (old.state, old.info().active_key) == (RunState.RUNNING, None)
    assert town.well.runs("town.Parcel").with_key(1).all() == [new]

    town.drive(held)
    assert (old.state, old.reason) == (RunState.CANCELED, "replaced")
    assert new.state is RunState.READY
    town.drive(town.claim(new))
    assert new.state is RunState.COMPLETED


def test_the_two_never_run_at_the_same_time(town: Town) -> None:
    """If nobody tells it, the newcomer looks for itself, and goes back to sleep while the old one is held."""
    old = parcel(town)
    held = town.claim(old)
    new = parcel(town, on_conflict="replace")
    for _ in range(3):
        town.clock.travel(31 * SECOND)
        town.promote()
        town.drive(town.claim(new))
        assert (new.state, new.reason, new.steps) == (RunState.AWAITING, "predecessor", [])

    town.drive(held, RunState.COMPLETED)
    town.clock.travel(31 * SECOND)
    town.promote()
    town.drive(town.claim(new))
    assert new.state is RunState.COMPLETED


def test_replacing_again_inherits_the_wait(town: Town) -> None:
    """The one that still waits is canceled, and the last one waits for the same old run, which wakes it."""
    old = parcel(town)
    held = town.claim(old)
    second, third = parcel(town, on_conflict="replace"), parcel(town, on_conflict="replace")
    assert (second.state, second.reason) == (RunState.CANCELED, "replaced")
    assert (third.state, third.info().after_id) == (RunState.AWAITING, old.id)
    town.drive(held)
    assert (old.state, third.state, second.state) == (RunState.CANCELED, RunState.READY, RunState.CANCELED)


def test_a_wait_for_one_who_is_over_is_not_inherited(town: Town) -> None:
    """A run that once waited for another, and now for itself, is replaced by one that is due at once."""
    old = parcel(town)
    held = town.claim(old)
    second = parcel(town, on_conflict="replace")
    town.drive(held)
    third = parcel(town, on_conflict="replace")
    assert (second.state, third.state, third.info().after_id) == (RunState.CANCELED, RunState.READY, None)


def test_a_canceled_newcomer_leaves_the_old_one_to_its_end(town: Town) -> None:
    """The request to end stands; the identity is free, and the old run's end wakes nobody who is over."""
    old = parcel(town)
    held = town.claim(old)
    new = parcel(town, on_conflict="replace")
    new.cancel()
    town.drive(held)
    assert (old.state, new.state) == (RunState.CANCELED, RunState.CANCELED)
    assert parcel(town).created


def test_a_replaced_run_whose_worker_is_lost_still_ends(town: Town) -> None:
    """Whoever finds it next has only to honour the request, and no person can put it off meanwhile."""
    old = parcel(town)
    town.claim(old)
    new = parcel(town, on_conflict="replace")
    town.clock.travel(31 * SECOND)
    town.recover()
    assert old.state is RunState.WAITING
    old.pause()
    old.skip()
    old.reschedule(SECOND * 10_000)
    town.promote()
    town.drive(town.claim(old))
    assert (old.state, new.state) == (RunState.CANCELED, RunState.READY)


# -- at the same time -------------------------------------------------------------------------------------


def in_a_transaction(town: Town, mode: str, number: int) -> tuple[Run | None, Run]:
    """A caller's own transaction that starts the run, and uses what came of it for something else."""
    for _ in range(20):
        with town.session() as session:
            try:
                try:
                    run = Parcel.with_options(engine=town.well, session=session, on_conflict=mode).start(
                        number=1
                    )
                except RunAlreadyExists:
                    run = None
                session.add(Person(name=str(number)))
                other = Plain.with_options(engine=town.well, session=session).start()
                session.commit()
                return run, other
            except OperationalError as error:
                # A deadlock, or SQLite's lock: the caller's transaction is the caller's to repeat.
                if not town.well.database.dialect.is_retryable(error):
                    raise
    raise AssertionError("the transaction never succeeded")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_held", [None, False, True], ids=["nobody", "ready", "running"])
def test_eight_callers_at_once_settle_one_identity(town: Town, mode: Any, is_held: bool | None) -> None:
    """However they meet, one open run has the identity, and each caller's transaction stays usable."""
    first = None if is_held is None else parcel(town)
    if first is not None and is_held:
        town.claim(first)
    answers = at_once(8, lambda number: in_a_transaction(town, mode, number))

    with town.session() as session:
        assert session.query(Person).count() == 8
    assert len({other.id for _, other in answers}) == 8
    open_runs = [
        run for run in town.well.runs("town.Parcel").live().all() if run.info().active_key is not None
    ]
    assert len(open_runs) == 1
    created = Counter(run is not None and run.created for run, _ in answers)
    if mode == "replace":
        assert created == {True: 8}
    else:
        assert created[True] == (1 if first is None else 0)
    if mode == "skip":
        assert {run for run, _ in answers} == {first or open_runs[0]}
    if mode == "replace" and is_held:
        assert open_runs[0].info().after_id == (first and first.id)
    if mode == "replace" and not is_held:
        assert open_runs[0].state is RunState.READY


@pytest.mark.parametrize("mode", MODES)
def test_eight_starts_at_once_settle_one_identity(town: Town, mode: Any) -> None:
    """The same in transactions of our own, in which deadlocks are nobody's business."""
    start: Callable[[], Run] = lambda: parcel(town, on_conflict=mode)  # noqa: E731 - one start, eight times
    answers = start_together([start] * 8)
    runs = [answer for answer in answers if isinstance(answer, Run)]
    refused = [answer for answer in answers if not isinstance(answer, Run)]
    assert all(isinstance(each, RunAlreadyExists) for each in refused), refused
    assert len(refused) == (7 if mode == "reject" else 0)
    assert sum(run.created for run in runs) == (8 if mode == "replace" else 1)
    assert len(town.well.runs("town.Parcel").live().all()) == 1


def test_a_conflicting_start_waits_for_the_others_transaction(server_town: Town) -> None:
    """Whether the identity is taken is known when the other one commits or rolls back, and not before."""
    town = server_town
    for commits in (True, False):
        answers: list[Run] = []
        with town.session() as session:
            first = parcel(town, commits, session=session)
            second = threading.Thread(
                target=lambda commits=commits, answers=answers: answers.append(  # type: ignore[misc]
                    parcel(town, commits, on_conflict="skip")
                )
            )
            second.start()
            second.join(timeout=0.2)
            assert second.is_alive()
            session.commit() if commits else session.rollback()
        second.join()
        assert (answers[0] == first, answers[0].created) == (commits, not commits)


def test_batches_with_common_keys_do_not_lock_each_other_out(town: Town) -> None:
    """Batches are inserted in the order of their keys: two of them never wait for each other crosswise."""
    numbers = list(range(60))

    def start_all(seed: int) -> list[Run]:
        mixed = numbers[seed:] + numbers[:seed]
        if seed % 2:
            mixed.reverse()
        return Parcel.with_options(engine=town.well, on_conflict="skip").start_many(
            [{"number": number} for number in mixed]
        )

    shares = at_once(6, start_all)
    assert sum(run.created for share in shares for run in share) == len(numbers)
    assert len({run.id for share in shares for run in share}) == len(numbers)
    wait_until(lambda: town.count() == len(numbers))
