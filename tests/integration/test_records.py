"""SQLAlchemy's records are stored as references and loaded afresh."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, ForeignKey, Numeric, StaticPool, create_engine, event
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    mapped_column,
    registry,
    scoped_session,
    sessionmaker,
)

from stepwell.clock import SystemClock
from stepwell.engine.records import SQLAlchemyRecords
from stepwell.errors import RecordGone, Undecodable, Unstorable
from stepwell.serialization import Codec, RecordRef


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Animal(Base):
    __tablename__ = "animals"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}


class Cat(Animal):
    """In its base's table."""

    __mapper_args__ = {"polymorphic_identity": "cat"}


class Horse(Animal):
    """In a table of its own, joined to its base's."""

    __tablename__ = "horses"
    id: Mapped[int] = mapped_column(ForeignKey("animals.id"), primary_key=True)
    hands: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "horse"}


class Robot(Animal):
    """In a table of its own, with ids of its own."""

    __tablename__ = "robots"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    __mapper_args__ = {"concrete": True, "polymorphic_identity": "robot"}


class Line(Base):
    __tablename__ = "lines"
    order: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)


class Odd(Base):
    __tablename__ = "odds"
    uid: Mapped[UUID] = mapped_column(primary_key=True)
    amount: Mapped[Decimal] = mapped_column(Numeric(12, 4, asdecimal=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    raw: Mapped[bytes] = mapped_column(primary_key=True)


class DataBase(MappedAsDataclass, DeclarativeBase):
    pass


class Point(DataBase):
    __tablename__ = "points"
    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    x: Mapped[int]


class Plain:
    """Mapped from outside, by the imperative style."""

    id: int


registry().map_imperatively(Plain, User.__table__)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(made)
    DataBase.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as opened:
        yield opened


@pytest.fixture
def fresh(engine: Engine) -> Iterator[Session]:
    """Another session, as the one of a later step."""
    with Session(engine) as opened:
        yield opened


records = SQLAlchemyRecords()
codec = Codec(records=[records])


def through_text(record: object) -> RecordRef:
    """What comes back of a record that was stored among arguments."""
    read = codec.loads(codec.dumps([record], what="arguments"), what="arguments")
    assert isinstance(read, list)
    (ref,) = read
    assert isinstance(ref, RecordRef)
    return ref


def kept(session: Session, *added: Any) -> None:
    session.add_all(added)
    session.commit()


def test_a_record_comes_back_as_it_is_now(session: Session, fresh: Session) -> None:
    """Law: stored is the reference, not a copy: what is loaded later has the values of then."""
    user = User(name="Ada")
    kept(session, user)
    ref = through_text(user)
    assert ref == RecordRef("sa", f"{__name__}:User", (user.id,))
    user.name = "Ada Lovelace"
    session.commit()
    loaded = records.load(ref, fresh)
    assert isinstance(loaded, User)
    assert loaded.name == "Ada Lovelace"
    assert loaded in fresh


@pytest.mark.parametrize("add", [False, True], ids=["transient", "pending"])
def test_a_record_without_a_primary_key_is_refused(session: Session, add: bool) -> None:
    """Law: a record that the database has not numbered yet is refused, with where it is and what to do."""
    user = User(name="Ada")
    if add:
        session.add(user)
    with pytest.raises(Unstorable, match=r"no primary key yet. Flush it first: session.flush"):
        records.reference(user)
    with pytest.raises(Unstorable, match=r"arguments\[0\] is .*User: it has no primary key yet"):
        codec.dumps([user], what="arguments")


def test_a_flushed_record_can_be_stored(session: Session) -> None:
    """Law: a flush is enough, its transaction may still be open."""
    user = User(name="Ada")
    session.add(user)
    session.flush()
    assert records.reference(user).key == (user.id,)


def test_a_primary_key_made_by_the_application_is_enough(session: Session) -> None:
    """Law: a key that the application made is an identity before the flush; half a key is none."""
    line = Line(order="A1", number=2)
    session.add(line)
    assert records.reference(line).key == ("A1", 2)
    with pytest.raises(Unstorable, match="no primary key yet"):
        records.reference(Line(order="A1"))


def test_a_reference_asks_the_database_nothing(engine: Engine, session: Session) -> None:
    """Law: expired and detached records are referred to without a query (a detached one could make none)."""
    user = User(name="Ada")
    kept(session, user)
    user_id = user.id
    session.expire(user)
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    assert records.reference(user).key == (user_id,)
    session.close()
    assert records.reference(user).key == (user_id,)
    assert statements == []


@pytest.mark.parametrize("commit", [False, True], ids=["flushed", "committed"])
def test_a_deleted_record_is_refused(session: Session, commit: bool) -> None:
    """Law: a record that is being deleted is refused where it is given, and not found missing days later."""
    user = User(name="Ada")
    kept(session, user)
    session.delete(user)
    session.commit() if commit else session.flush()
    with pytest.raises(Unstorable, match="it was deleted"):
        records.reference(user)


def test_a_record_that_is_gone_is_said(session: Session, fresh: Session) -> None:
    """Law: a reference to a deleted record raises RecordGone, which names class and key."""
    user = User(name="Ada")
    kept(session, user)
    ref, user_id = records.reference(user), user.id
    session.delete(user)
    session.commit()
    with pytest.raises(RecordGone, match=f"there is no User with the primary key {user_id} any more"):
        records.load(ref, fresh)


@pytest.mark.parametrize(
    "animal", [Animal(), Cat(), Horse(hands=15)], ids=lambda animal: type(animal).__name__
)
def test_subclasses_share_the_identity_of_their_base(
    session: Session, fresh: Session, animal: Animal
) -> None:
    """Law: with inheritance a reference names the topmost class, and loads an instance of the right one."""
    kept(session, animal)
    ref = through_text(animal)
    assert ref.type == f"{__name__}:Animal"
    loaded = records.load(ref, fresh)
    assert type(loaded) is type(animal)
    assert ref == records.reference(loaded)


def test_a_concrete_subclass_has_an_identity_of_its_own(session: Session, fresh: Session) -> None:
    """Law: where a subclass has its own table and ids, the same id in the base's table is another record."""
    kept(session, Robot(id=77, kind="robot"), Cat(id=77))
    robot = session.get(Robot, 77)
    ref = through_text(robot)
    assert ref.type == f"{__name__}:Robot"
    assert type(records.load(ref, fresh)) is Robot


def test_composite_and_unusual_keys_survive_the_text(session: Session, fresh: Session) -> None:
    """Law: keys of several columns, UUIDs, decimals, instants, dates and bytes find their record again."""

    class DriversUUID(UUID):
        """What asyncpg brings."""

    line = Line(order="B2", number=7)
    odd = Odd(
        uid=DriversUUID(int=uuid4().int),
        amount=Decimal("12.5000"),
        at=datetime(2030, 1, 2, 3, 4, 5, 6),  # SQLite's DateTime knows no zone
        day=date(2030, 1, 2),
        raw=b"\x00\xff",
    )
    assert all(part is not None for part in through_text(odd).key)
    kept(session, line, odd)
    for record in (line, odd):
        loaded = records.load(through_text(record), fresh)
        assert type(loaded) is type(record)
        assert records.reference(loaded) == records.reference(record)


def test_an_aware_instant_as_a_key_stays_one() -> None:
    """Law: an aware part of a key comes back as the same instant."""
    instant = datetime(2030, 1, 2, tzinfo=UTC)
    odd = Odd(uid=uuid4(), amount=Decimal(1), at=instant, day=instant.date(), raw=b"")
    assert through_text(odd).key[2] == instant


def test_all_styles_of_mapping_are_records(session: Session, fresh: Session) -> None:
    """Law: mapped dataclasses are records and not dataclasses; so are imperatively mapped classes."""
    point, plain = Point(x=3), Plain()
    plain.name = "Bob"  # type: ignore[attr-defined]  # the mapper's
    kept(session, point, plain)
    for record in (point, plain):
        assert type(records.load(through_text(record), fresh)) is type(record)


@pytest.mark.parametrize(
    "value",
    [1, "x", None, User, object(), SystemClock(), RecordRef("sa", "m:C", (1,))],
    ids=lambda v: type(v).__name__,
)
def test_other_values_are_no_records(value: object) -> None:
    """Law: only instances of mapped classes are records; a mapped class itself is none."""
    assert not records.handles(value)


def test_looking_at_an_engine_does_not_connect() -> None:
    """Law: whether a value is a record is answered by its class: an engine is not asked for a connection."""
    unreachable = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert not records.handles(unreachable)


def test_records_load_through_any_synchronous_session(engine: Engine, session: Session) -> None:
    """Law: a scoped session serves as well; what is no session is refused by name."""
    user = User(name="Ada")
    kept(session, user)
    ref = records.reference(user)
    scoped = scoped_session(sessionmaker(engine))
    assert isinstance(records.load(ref, scoped), User)
    scoped.remove()
    with pytest.raises(TypeError, match="through a SQLAlchemy Session, not Engine"):
        records.load(ref, engine)


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (RecordRef("sa", f"{__name__}:Nobody", (1,)), "no class Nobody"),
        (
            RecordRef("sa", "stepwell.clock:SystemClock", (1,)),
            "stepwell.clock:SystemClock is no mapped class any more",
        ),
        (
            RecordRef("sa", f"{__name__}:Line", ("A1",)),
            r"has 1 key value, but its primary key is \(order, number\)",
        ),
    ],
    ids=["class gone", "not mapped", "other key"],
)
def test_a_reference_that_fits_nothing_is_undecodable(session: Session, ref: RecordRef, message: str) -> None:
    """Law: a class that went, is no longer mapped, or has another primary key now is said, not guessed."""
    with pytest.raises(Undecodable, match=message):
        records.load(ref, session)
