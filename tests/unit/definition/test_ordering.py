"""The order of steps that say ``before=`` or ``after=``."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from stepwell.definition.ordering import Place, arrange
from stepwell.definition.steps import step
from stepwell.definition.workflow import Workflow
from tests.unit.definition.sample import names, refusal


class Base(Workflow):
    @step
    def first(self) -> None: ...

    @step
    def last(self) -> None: ...


def order(*places: Place) -> list[str]:
    return arrange("W", places)


def test_without_places_the_declaration_is_the_order() -> None:
    """Nothing moves that does not ask to."""
    assert order(Place("c"), Place("a"), Place("b")) == ["c", "a", "b"]


def test_a_step_moves_next_to_its_anchor() -> None:
    """``before`` and ``after`` mean directly so."""
    assert order(Place("a"), Place("b"), Place("c", "before", "b")) == ["a", "c", "b"]
    assert order(Place("a"), Place("b"), Place("c", "after", "a")) == ["a", "c", "b"]


def test_steps_at_one_anchor_keep_their_order() -> None:
    """Two steps behind one do not come out reversed, nor do two in front of it."""
    assert order(Place("x"), Place("a", "after", "x"), Place("b", "after", "x")) == ["x", "a", "b"]
    assert order(Place("x"), Place("a", "before", "x"), Place("b", "before", "x")) == ["a", "b", "x"]


def test_an_anchor_may_stand_further_down() -> None:
    """A step may be placed by one that is declared later, and may be an anchor itself."""
    assert order(Place("a", "after", "c"), Place("b", "before", "a"), Place("c")) == ["c", "b", "a"]


def test_a_long_chain_is_no_problem() -> None:
    """Each of 3,000 steps behind the one before, as a loop may write it."""
    chain = [Place("0")] + [Place(str(n), "after", str(n - 1)) for n in range(1, 3000)]
    assert order(*chain) == [str(n) for n in range(3000)]


SIDES: st.SearchStrategy[Literal["before", "after"]] = st.sampled_from(["before", "after"])


@given(st.data())
def test_every_step_appears_once_and_on_its_side(data: st.DataObject) -> None:
    """Whatever hangs on whatever, no step is lost or doubled, and each stands on its side."""
    size = data.draw(st.integers(1, 12))
    places = [Place("0")]
    for n in range(1, size):
        anchor = data.draw(st.none() | st.integers(0, n - 1))
        side = data.draw(SIDES)
        places.append(Place(str(n)) if anchor is None else Place(str(n), side, str(anchor)))
    shuffled = data.draw(st.permutations(places))
    arranged = order(*shuffled)
    assert sorted(arranged) == sorted(place.name for place in places)
    for place in places:
        if place.anchor is not None:
            is_before = arranged.index(place.name) < arranged.index(place.anchor)
            assert is_before is (place.side == "before")


def test_unknown_anchors_are_all_named() -> None:
    """The message tells each misplaced step and which steps there are."""
    assert refusal(lambda: order(Place("a"), Place("b", "before", "x"), Place("c", "after", "y"))) == (
        "W.b: placed by what is no step of this class: b before 'x', c after 'y'. The steps are a, b, c"
    )


def test_a_circle_is_named_in_full() -> None:
    """Steps that merely hang on it are not part of it."""
    places = (
        Place("root"),
        Place("tail", "after", "a"),
        Place("a", "after", "b"),
        Place("b", "before", "c"),
        Place("c", "after", "a"),
    )
    assert refusal(lambda: order(*places)) == (
        "W.a: these steps are placed by each other in a circle: a after b, b before c, c after a"
    )
    assert "x after x" in refusal(lambda: order(Place("x", "after", "x")))


class TestInClasses:
    def test_a_subclass_places_steps_by_name_or_by_step(self) -> None:
        """An anchor is a step's name, or the step itself."""

        class Longer(Base):
            @step(after="first")
            def second(self) -> None: ...

            @step(before=Base.last)
            def third(self) -> None: ...

            @step(after=third)
            def fourth(self) -> None: ...

        assert names(Longer) == ["first", "second", "third", "fourth", "last"]

    def test_an_override_moves_only_if_it_says_so(self) -> None:
        """The place of an inherited step that was moved stays moved; a new ``before`` replaces it."""

        class Moved(Base):
            @step(before="first")
            def zeroth(self) -> None: ...

        class Same(Moved):
            @step
            def zeroth(self) -> None: ...

        class Back(Moved):
            @step(after="last")
            def zeroth(self) -> None: ...

        assert names(Same) == ["zeroth", "first", "last"]
        assert names(Back) == ["first", "last", "zeroth"]

    def test_an_overridden_step_is_an_anchor_still(self) -> None:
        """``after=Base.first`` means the step of that name, in whatever version."""

        class Over(Base):
            @step
            def first(self) -> None: ...

            @step(after=Base.first)
            def second(self) -> None: ...

        assert names(Over) == ["first", "second", "last"]

    def test_an_anchor_of_another_class_is_refused(self) -> None:
        """A step object that the class does not have is a mistake, even if a name fits."""

        class Other(Workflow):
            @step
            def first(self) -> None: ...

        def build() -> None:
            class Lost(Base):
                @step(after=Other.first)
                def second(self) -> None: ...

        assert refusal(build) == "Lost.second: after names a step of another class, <step 'first'>"

    def test_an_anchor_is_a_step_or_a_name(self) -> None:
        """Nothing else can be found in the class."""

        def build() -> None:
            class Lost(Base):
                @step(after=1)  # type: ignore[call-overload,untyped-decorator]
                def second(self) -> None: ...

        assert refusal(build) == "Lost.second: after must be a step of this class or its name; got 1"

    def test_the_two_sides_exclude_each_other(self) -> None:
        """A step stands next to one other step."""

        def build() -> None:
            class Torn(Base):
                @step(after="first", before="last")
                def second(self) -> None: ...

        assert refusal(build) == "Torn.second: before and after exclude each other; give one of them"
