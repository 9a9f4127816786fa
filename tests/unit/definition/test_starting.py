"""``start`` and its relatives: which arguments and options they take, and which engine they reach."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest

from stepwell.definition.runtime import current
from stepwell.definition.starting import Call, StartOptions, default_engine, set_default_engine
from stepwell.definition.steps import removed_step, step
from stepwell.definition.workflow import Workflow
from stepwell.errors import RunError, StoreError, WrongArguments
from tests.unit.definition.sample import Admin, Company, RecordingEngine, User


class Onboarding(Workflow[User]):
    @step
    def greet(self) -> None: ...


class Closing(Workflow[User]):
    hero_optional = True

    @step
    def close(self) -> None: ...


class Report(Workflow):
    @step
    def write(self) -> None: ...


class Order(Workflow[Company]):
    def run(self, order_id: str, note: str = "", **extra: Any) -> None: ...


class Empty(Workflow): ...


@pytest.fixture
def engine() -> Iterator[RecordingEngine]:
    """The default engine of the process."""
    recording = RecordingEngine()
    set_default_engine(recording)
    yield recording
    set_default_engine(None)


class TestCalls:
    def test_the_hero_comes_first(self) -> None:
        """Or by its name; subclasses of its type are as good."""
        user, admin = User(), Admin()
        assert Onboarding.with_args(user, plan="pro") == Call(Onboarding, user, {"plan": "pro"})
        assert Onboarding.with_args(hero=admin) == Call(Onboarding, admin, {})

    def test_a_workflow_without_a_hero_takes_arguments_only(self) -> None:
        """By name, whatever they are called."""
        assert Report.with_args(month="May") == Call(Report, None, {"month": "May"})

    def test_an_optional_hero_may_be_missing(self) -> None:
        """Only if the class says so."""
        assert Closing.with_args(None).hero is None  # type: ignore[arg-type]
        assert Closing.with_args().hero is None  # type: ignore[call-arg]

    def test_arguments_are_those_of_run(self) -> None:
        """By place or name; what is left to its default is left out."""
        company = Company()
        assert Order.with_args(company, "7") == Call(Order, company, {"order_id": "7"})
        assert Order.with_args(company, note="x", order_id="7", colour="red").args == {
            "order_id": "7",
            "note": "x",
            "colour": "red",
        }

    @pytest.mark.parametrize(
        ("workflow", "args", "kwargs", "text"),
        [
            (
                Onboarding,
                (),
                {},
                "Onboarding.start() needs its hero, a User: Onboarding.start(hero, ...). Runs without "
                "one are "
                "allowed by hero_optional = True in the class.",
            ),
            (Onboarding, (None,), {}, "Onboarding.start() needs its hero, a User: "),
            (Onboarding, (5,), {}, "Onboarding is about a User; an int cannot be its hero: 5."),
            (Closing, (Company(),), {}, "Closing is about a User; a Company cannot be its hero: <"),
            (
                Report,
                (User(),),
                {},
                "Report.start() takes arguments by name only; got <tests.unit.definition.sample.User object",
            ),
            (
                Report,
                (),
                {"hero": User()},
                "Report has no hero, and no argument may be called 'hero'. If it is about a record, say so: "
                "class Report(Workflow[RecordType]).",
            ),
            (
                Onboarding,
                (User(), 5),
                {},
                "Onboarding.start() takes arguments by name only, after its hero; got 5.",
            ),
            (
                Order,
                (Company(),),
                {},
                "Order.start(order_id: 'str', note: 'str' = '', **extra: 'Any'): missing a required "
                "argument: "
                "'order_id'.",
            ),
            (
                Order,
                (Company(), "7", "x", "y"),
                {},
                "Order.start(order_id: 'str', note: 'str' = '', **extra: 'Any'): ",
            ),
        ],
    )
    def test_wrong_arguments_are_refused(
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
    ) -> None:
        """Before anything is stored; the error is a TypeError, as for any wrong call."""
        with pytest.raises(WrongArguments) as refused:
            workflow.with_args(*args, **kwargs)
        assert str(refused.value).startswith(text)
        assert isinstance(refused.value, TypeError)

    def test_a_hero_that_cannot_be_shown_is_refused_all_the_same(self) -> None:
        """A broken ``__repr__`` does not break the message."""

        class Shy:
            def __repr__(self) -> str:
                raise ValueError

        with pytest.raises(WrongArguments, match=r"a .*Shy cannot be its hero: <.*Shy>"):
            Onboarding.with_args(Shy())  # type: ignore[arg-type]


class TestAbstract:
    def test_a_class_without_steps_cannot_be_started(self) -> None:
        """It is there to be derived from."""
        with pytest.raises(RunError) as refused:
            Empty.start()
        assert str(refused.value) == (
            "Empty has neither steps nor run(), so there is nothing to start. Decorate methods with "
            "@step, or "
            "start a subclass that has some."
        )

    def test_gravestones_are_nothing_to_start(self) -> None:
        """They are there for runs that are under way."""

        class Over(Workflow):
            removed_step("greet")

        with pytest.raises(RunError, match=r"^Over has neither steps nor run"):
            Over.start()

    def test_an_abstract_class_cannot_be_started(self) -> None:
        """A worker could not make an instance of it."""

        class Export(Workflow, ABC):
            @step
            @abstractmethod
            def fetch(self) -> None: ...

        with pytest.raises(
            RunError, match=r"^Export is abstract and cannot be started: a subclass must define fetch"
        ):
            Export.start()


class TestEngines:
    def test_start_reaches_the_default_engine(self, engine: RecordingEngine) -> None:
        """With the call and options that say nothing."""
        user = User()
        run: object = Onboarding.start(user, plan="pro")
        assert run == "run 1"
        assert engine.started == [(Call(Onboarding, user, {"plan": "pro"}), StartOptions())]

    def test_without_an_engine_the_error_says_what_to_do(self) -> None:
        """A process must create one first."""
        with pytest.raises(StoreError) as refused:
            Report.start()
        assert str(refused.value) == (
            "there is no default engine in this process. Create one first, "
            'Stepwell("sqlite:///app.db"), or name '
            "one: with_options(engine=...)."
        )

    def test_an_engine_can_be_named(self, engine: RecordingEngine) -> None:
        """It comes before the default."""
        other = RecordingEngine()
        Report.with_options(engine=other).start()
        assert (len(engine.started), len(other.started)) == (0, 1)
        assert default_engine() is engine

    def test_in_a_run_its_own_engine_is_used(self, engine: RecordingEngine) -> None:
        """What a step starts belongs to the database of its run, whatever the process's default is."""
        own = RecordingEngine()
        token = current.set(mock.Mock(starter=own))
        try:
            Report.start()
            Report.with_options(engine=engine).start()
        finally:
            current.reset(token)
        assert (len(engine.started), len(own.started)) == (1, 1)


class TestMany:
    def test_items_are_calls_heroes_or_arguments(self, engine: RecordingEngine) -> None:
        """Whatever one start takes, in the order given."""
        users = [User(), User()]
        runs: list[object] = [*Onboarding.start_many(users)]
        assert runs == ["run 1", "run 2"]
        Onboarding.start_many(Onboarding.with_args(user, plan="pro") for user in users)
        Report.start_many({"month": month} for month in ("May", "June"))
        assert [(call.hero, call.args) for call, _ in engine.started] == [
            (users[0], {}),
            (users[1], {}),
            (users[0], {"plan": "pro"}),
            (users[1], {"plan": "pro"}),
            (None, {"month": "May"}),
            (None, {"month": "June"}),
        ]

    def test_none_is_none(self, engine: RecordingEngine) -> None:
        """Nothing to start is no mistake."""
        assert Report.start_many([]) == []

    def test_other_items_are_refused(self, engine: RecordingEngine) -> None:
        """A call of another class, or something that is no set of arguments."""
        with pytest.raises(WrongArguments) as refused:
            Report.start_many([Onboarding.with_args(User())])
        assert (
            str(refused.value) == "Report.start_many() got a call of Onboarding; each class starts its own."
        )
        with pytest.raises(WrongArguments) as refused:
            Report.start_many(["May"])
        assert str(refused.value) == (
            "Report.start_many() takes mappings of arguments, or calls made by Report.with_args(...); "
            "got 'May'."
        )

    def test_one_key_is_not_for_many(self, engine: RecordingEngine) -> None:
        """All but the first would be conflicts."""
        with pytest.raises(WrongArguments) as refused:
            Report.with_options(key="May").start_many([{}])
        assert str(refused.value) == (
            "with_options(key=...) names one run of Report, and start_many() starts many. Give the class "
            "unique_by, or start each run with its key."
        )


class TestOptions:
    def test_options_arrive_at_the_engine(self, engine: RecordingEngine) -> None:
        """A launcher is a value, for any number of starts."""
        session = mock.Mock(spec=["execute"])
        launcher = Onboarding.with_options(
            session=session, key=("a", 1), queue="mail", priority=0, at=timedelta(days=1), on_conflict="skip",
            same_args=False,
        )  # fmt: skip
        launcher.start(User())
        launcher.start(User())
        wanted = StartOptions(
            session=session, key=("a", 1), queue="mail", priority=0, at=timedelta(days=1), on_conflict="skip",
            same_args=False,
        )  # fmt: skip
        assert [options for _, options in engine.started] == [wanted, wanted]
        assert launcher == Onboarding.with_options(**{**launcher_options(wanted)})

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (
                {"order_id": "7"},
                "Report.with_options() has no option 'order_id'. The options are session, connection, "
                "engine, key, "
                "queue, priority, at, on_conflict, same_args; arguments of the workflow go to start().",
            ),
            (
                {"quue": "x"},
                "Report.with_options() has no option 'quue' (did you mean queue?). The options are ",
            ),
            (
                {"session": mock.Mock(), "connection": mock.Mock()},
                "Report.with_options(): session and connection exclude each other; give the one you "
                "have open.",
            ),
            (
                {"session": 5},
                "Report.with_options(): session must be one that can execute statements; got 5.",
            ),
            (
                {"engine": "sqlite://"},
                "Report.with_options(): engine must be a Stepwell(...); got 'sqlite://'.",
            ),
            (
                {"key": None},
                "Report.with_options(): key is None, which names no run; leave it out to start without "
                "a key.",
            ),
            (
                {"key": 1.5},
                "Report.with_options(): key must be something that identifies, such as a str, int, UUID "
                "or a tuple "
                "of these; got 1.5.",
            ),
            ({"key": ["a"]}, "Report.with_options(): key must be something that identifies"),
            ({"key": True}, "Report.with_options(): key must be something that identifies"),
            (
                {"at": datetime(2030, 1, 1)},
                "Report.with_options(): at must be an aware datetime; datetime.datetime(2030, 1, 1, 0, "
                "0) has no "
                "time zone. Attach one: tzinfo=UTC.",
            ),
            (
                {"at": 60},
                "Report.with_options(): at must be an aware datetime, or a timedelta from now; got 60.",
            ),
            ({"at": timedelta(-1)}, "Report.with_options(): at must not be negative; got -1 day, 0:00:00."),
            ({"queue": ""}, "Report.with_options(): queue must not be empty"),
            ({"priority": -1}, "Report.with_options(): priority must be 0 or more; got -1."),
            (
                {"on_conflict": "ignore"},
                "Report.with_options(): on_conflict must be one of 'reject', 'skip', 'replace'; got "
                "'ignore'.",
            ),
            ({"same_args": None}, "Report.with_options(): same_args must be True or False; got None."),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, Any], text: str) -> None:
        """At once, and not only when something is started with them."""
        with pytest.raises(WrongArguments) as refused:
            Report.with_options(**options)
        assert str(refused.value).startswith(text)

    def test_aware_instants_and_plain_keys_are_fine(self) -> None:
        """Options that are None say nothing."""
        options = Report.with_options(at=datetime(2030, 1, 1, tzinfo=UTC), key="", queue=None).options
        assert (options.at, options.key, options.queue) == (datetime(2030, 1, 1, tzinfo=UTC), "", None)


def launcher_options(options: StartOptions) -> dict[str, Any]:
    """The options that say something, as keywords."""
    said = {name: getattr(options, name) for name in StartOptions.__slots__}
    return {name: value for name, value in said.items() if value is not None}
