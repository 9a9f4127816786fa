"""The order of steps: as declared, except for those that say ``before=`` or ``after=``.

The algorithm: a step that names another one hangs on it, at its front or at its back; all others stand in a
row, in the order of declaration (a base class's first, an overriding step in the place of the one that it
overrides). Going through the row, each step is preceded by what hangs on its front and followed by what hangs
on its back, each group in the order of declaration and each member with what hangs on it in turn. So an
anchor may be declared later than the step that names it, and two steps behind one anchor keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from stepwell.errors import DefinitionError

__all__ = ["Place", "arrange"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step wants to stand.

    Attributes:
        name: The step.
        side: On which side of the anchor; None leaves the step where it was declared.
        anchor: The name of the other step.
    """

    name: str
    side: Literal["before", "after"] | None = None
    anchor: str | None = None


@dataclass(slots=True)
class _Node:
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def arrange(workflow: str, places: Iterable[Place]) -> list[str]:
    """The names in the order in which the steps run.

    Args:
        workflow: The class's name, for messages.
        places: One for each step, in the order of declaration.

    Raises:
        DefinitionError: An anchor is no step of the class, or steps hang on each other in a circle.
    """
    places = list(places)
    nodes = {place.name: _Node() for place in places}
    _refuse_unknown(workflow, places, nodes)
    for place in places:
        if place.anchor is not None:
            node = nodes[place.anchor]
            (node.before if place.side == "before" else node.after).append(place.name)
    order = _walk([place.name for place in places if place.anchor is None], nodes)
    _refuse_circles(workflow, places, set(order))
    return order


def _walk(roots: list[str], nodes: dict[str, _Node]) -> list[str]:
    """Each root between what hangs on it. By a stack: a chain may be longer than Python's recursion limit."""
    order = []
    stack = [(name, False) for name in reversed(roots)]
    while stack:
        name, is_framed = stack.pop()
        if is_framed:
            order.append(name)
            continue
        node = nodes[name]
        stack += [(other, False) for other in reversed(node.after)]
        stack.append((name, True))
        stack += [(other, False) for other in reversed(node.before)]
    return order


def _refuse_unknown(workflow: str, places: list[Place], known: Collection[str]) -> None:
    lost = [place for place in places if place.anchor is not None and place.anchor not in known]
    if lost:
        told = ", ".join(f"{place.name} {place.side} {place.anchor!r}" for place in lost)
        raise DefinitionError(
            workflow,
            f"placed by what is no step of this class: {told}. The steps are {', '.join(known)}",
            step=lost[0].name,
        )


def _refuse_circles(workflow: str, places: list[Place], placed: set[str]) -> None:
    """Steps that no row reaches hang on each other; what merely hangs on the circle is not named."""
    anchors = {place.name: place for place in places if place.name not in placed}
    if not anchors:
        return
    name = next(iter(anchors))
    for _ in anchors:
        name = anchors[name].anchor or name
    circle = [name]
    while (following := anchors[circle[-1]].anchor) and following != name:
        circle.append(following)
    told = ", ".join(f"{step} {anchors[step].side} {anchors[step].anchor}" for step in circle)
    raise DefinitionError(workflow, f"these steps are placed by each other in a circle: {told}", step=name)
