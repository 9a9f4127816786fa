"""Objects that are written by the names of their fields: named tuples, dataclasses, pydantic models.

All three are rebuilt exactly as they were: a value that a ``__post_init__`` or a validator would change a
second time comes back unchanged. When the class has changed in the meantime, new fields take their defaults;
a stored field that the class no longer has is an error, since dropping it would lose data silently.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from stepwell.serialization.paths import Misfit, with_article

__all__ = ["KINDS", "Kind", "kind_of"]


class Kind(Protocol):
    """One way in which classes declare fields."""

    @property
    def tag(self) -> str:
        """The kind's name in the text. It is stored: it never changes."""
        ...

    def matches(self, cls: type) -> bool:
        """Whether the class is of this kind."""
        ...

    def take(self, value: Any) -> tuple[dict[str, Any], list[str]]:
        """The fields of a value, and the names of those that were never set (pydantic tells them apart)."""
        ...

    def make(self, cls: Any, fields: dict[str, Any], unset: list[str]) -> object:
        """The value again."""
        ...


class _NamedTuples:
    tag: Final = "namedtuple"

    def matches(self, cls: type) -> bool:
        return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")

    def take(self, value: Any) -> tuple[dict[str, Any], list[str]]:
        if getattr(value, "__dict__", None):
            names = ", ".join(vars(value))
            raise Misfit(
                f"a named tuple with attributes beside its fields ({names})", "Make it a dataclass instead."
            )
        return dict(zip(value._fields, value, strict=True)), []

    def make(self, cls: Any, fields: dict[str, Any], unset: list[str]) -> object:
        _check_fields(cls, fields, known=cls._fields, optional=cls._field_defaults)
        return cls._make(
            fields[name] if name in fields else cls._field_defaults[name] for name in cls._fields
        )


class _Dataclasses:
    tag: Final = "dataclass"

    def matches(self, cls: type) -> bool:
        return dataclasses.is_dataclass(cls)

    def take(self, value: Any) -> tuple[dict[str, Any], list[str]]:
        cls: type = type(value)
        parameters = _init_parameters(cls)
        names = [field.name for field in dataclasses.fields(value)]
        if strange := sorted(parameters - set(names)):
            raise Misfit(
                f"{with_article(cls.__qualname__)}, whose __init__ takes what no field keeps: "
                f"{_listed(strange)}",
                f"Teach the codec: codec.register({cls.__name__}, 'a-tag', encode, decode).",
            )
        missing = object()
        found = {name: getattr(value, name, missing) for name in names}
        fields = {name: item for name, item in found.items() if item is not missing}
        if lost := sorted(parameters - set(fields)):
            raise Misfit(
                f"{with_article(cls.__qualname__)} without its {_listed(lost)}", "Set it before it is stored."
            )
        return fields, []

    def make(self, cls: Any, fields: dict[str, Any], unset: list[str]) -> object:
        _check_fields(cls, fields, known=[field.name for field in dataclasses.fields(cls)])
        parameters = _init_parameters(cls)
        try:
            value = cls(**{name: item for name, item in fields.items() if name in parameters})
        except Exception as error:
            raise Misfit(
                f"{with_article(cls.__qualname__)}, which cannot be made from the fields {_listed(fields)} "
                f"({type(error).__name__}: {error})",
                "Give fields that were added later a default.",
            ) from error
        for name, item in fields.items():
            if getattr(value, name, None) is not item:  # init=False, or changed by __post_init__
                object.__setattr__(value, name, item)
        return value


class _Models:
    """Pydantic models, known by their methods: pydantic itself is never imported here.

    ``model_validate`` would not do: it wants aliases for names, runs validators that expect the raw form of a
    value a second time, and turns a model in a field of type ``Any`` into a dict.
    """

    tag: Final = "model"

    def matches(self, cls: type) -> bool:
        return all(hasattr(cls, name) for name in ("model_fields", "model_construct", "model_validate"))

    def take(self, value: Any) -> tuple[dict[str, Any], list[str]]:
        fields = {name: vars(value)[name] for name in type(value).model_fields if name in vars(value)}
        return {**fields, **(value.model_extra or {})}, sorted(set(fields) - value.model_fields_set)

    def make(self, cls: Any, fields: dict[str, Any], unset: list[str]) -> object:
        known = cls.model_fields
        optional = [name for name, field in known.items() if not field.is_required()]
        open_ended = cls.model_config.get("extra") == "allow"
        _check_fields(cls, fields, known=[*known, *fields] if open_ended else known, optional=optional)
        value = cls.model_construct(_fields_set=set(fields) - set(unset), **fields)
        for name in known.keys() & fields.keys():
            if vars(value).get(name) is not fields[name]:  # one field's alias is another field's name
                vars(value)[name] = fields[name]
        return value


KINDS: Final[Mapping[str, Kind]] = {kind.tag: kind for kind in (_NamedTuples(), _Dataclasses(), _Models())}


def kind_of(cls: type) -> Kind | None:
    """The kind that the class is of, or None."""
    return next((kind for kind in KINDS.values() if kind.matches(cls)), None)


@lru_cache(maxsize=512)
def _init_parameters(cls: type) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


def _check_fields(
    cls: type, fields: Mapping[str, Any], *, known: Collection[str], optional: Collection[str] | None = None
) -> None:
    if gone := sorted(set(fields) - set(known)):
        raise Misfit(
            f"{with_article(cls.__qualname__)} with {_listed(gone)}, which the class no longer has",
            "Keep the field, with a default, until the runs that stored it are over.",
        )
    if optional is None:
        return
    if absent := [name for name in known if name not in fields and name not in optional]:
        raise Misfit(
            f"{with_article(cls.__qualname__)} that was stored without {_listed(absent)}",
            "Give fields that were added later a default.",
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in names) or "(none)"
