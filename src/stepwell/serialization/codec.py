"""The codec: the one door between values and stored text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from stepwell.errors import TooLarge, Undecodable, Unstorable
from stepwell.serialization.canonical import canonical_text
from stepwell.serialization.decoding import Decoder
from stepwell.serialization.encoding import Encoder
from stepwell.serialization.extensions import Custom, Extensions
from stepwell.serialization.paths import Misfit, at_index, at_key, root_of
from stepwell.serialization.plain import DECODER, ENCODER, TAG, plain_text
from stepwell.serialization.records import RecordAdapter, RecordRef
from stepwell.serialization.strict import StrictEncoder

__all__ = ["Codec"]

T = TypeVar("T")

_IMMUTABLE: Final = frozenset({type(None), bool, int, str})
_MARK: Final = f'"{TAG}"'
_MOST_CHILDREN: Final = 1000


class Codec:
    """Turns values into stored text and back into the same values of the same types.

    Storable are None, bool, int, float, str, list, dict, tuple, set, frozenset, bytes, aware datetimes (kept
    as their instant, in UTC), dates, times, timedeltas, UUIDs, Decimals, Enums, named tuples, dataclasses,
    pydantic models, records (as references), and what ``register`` adds; nested in any way. Anything else is
    refused, and so is a subclass of one of these types, which would come back as its base.

    A codec is cheap to make. Register classes before it is shared; from then on any number of threads may use
    it.

    Args:
        records: The adapters for the records of the application's mappers, asked in this order.

    Raises:
        ValueError: Two adapters have the same tag.

    Example:
        >>> codec = Codec()
        >>> codec.loads(codec.dumps({"total": (1, 2)}, what="result"), what="result")
        {'total': (1, 2)}
    """

    def __init__(self, *, records: Sequence[RecordAdapter] = ()) -> None:
        self._extensions = Extensions(records)

    def register(
        self, cls: type[T], tag: str, encode: Callable[[T], object], decode: Callable[[Any], T]
    ) -> None:
        """Make a class storable, or choose another form for a dataclass, Enum or model.

        Meant for exactly this class: instances of its subclasses are refused.

        Args:
            cls: The class.
            tag: A name for it in the stored text, unique in this codec. Runs may be read back years later:
                keep it when the class is renamed or moved.
            encode: Makes something storable of an instance, such as a str, a dict or a tuple.
            decode: Makes the instance again.

        Raises:
            TypeError: ``cls`` is no class or one that has a fixed form, or ``tag`` is no text.
            ValueError: The class or the tag is registered already.

        Example:
            >>> codec = Codec()
            >>> codec.register(complex, "complex", lambda z: (z.real, z.imag), lambda parts: complex(*parts))
            >>> codec.roundtrip([1j])
            [1j]
        """
        if not isinstance(cls, type):
            raise TypeError(f"register() takes a class, not {cls!r}")
        if cls in Encoder.forms:
            raise TypeError(
                f"{cls.__name__} has a fixed form and cannot be registered; wrap it in a dataclass"
            )
        if type(tag) is not str or not tag:
            raise TypeError(f"the tag of {cls.__qualname__} must be a non-empty str, not {tag!r}")
        self._extensions.add(Custom(cls, tag, encode, decode))

    def dumps(self, value: object, *, what: str, limit: int | None = None) -> str:
        """The text of a value: ASCII, without line breaks.

        Args:
            value: What to store.
            what: What it is, for error messages, such as "result of step 'ship'". Paths begin with its first
                word.
            limit: The most bytes that the text may have in UTF-8. None means no limit.

        Raises:
            Unstorable: Something in it cannot be stored; the message has the path and says what to do.
            TooLarge: The text is longer than ``limit``.
        """
        if value is None:
            return "null"
        text = plain_text(value)
        if text is None:
            text = self._careful_text(Encoder, value, what)
        if limit is not None and len(text) > limit and (size := _size(text)) > limit:
            self._refuse_size(value, size, what, limit)
        return text

    def dumps_json(self, value: object, *, what: str, limit: int | None = None) -> str:
        """The text of a value that must be plain JSON, as context values must; nothing is converted.

        Args:
            value: None, bool, int, float, str, list, or dict with str keys, nested in any way.
            what: As in ``dumps``.
            limit: As in ``dumps``.

        Raises:
            Unstorable: Something in it is not plain JSON.
            TooLarge: The text is longer than ``limit``.
        """
        text = plain_text(value)
        if text is None:
            text = self._careful_text(StrictEncoder, value, what)
        if limit is not None and len(text) > limit and (size := _size(text)) > limit:
            self._refuse_size(value, size, what, limit)
        return text

    def loads(self, text: str, *, what: str) -> object:
        """The value that ``dumps`` or ``dumps_json`` made the text of.

        Records come back as ``RecordRef``; ``load_record`` fetches them.

        Args:
            text: The stored text.
            what: What it is, for error messages.

        Raises:
            Undecodable: The text is damaged, or names a class, member, field or tag that is not known here.
        """
        if text == "null":
            return None
        try:
            value: object = DECODER.decode(text)
            return Decoder(self._extensions).decode(value) if _MARK in text else value
        except Misfit as misfit:
            raise Undecodable(
                f"{what} cannot be read back: {misfit.sentence(root_of(what))}"
            ) from misfit.__cause__
        except (ValueError, TypeError, RecursionError) as error:
            raise Undecodable(
                f"{what} cannot be read back: its text is not JSON ({type(error).__name__}: {error}). "
                f"The row was changed by hand or cut off: restore it, or cancel the run."
            ) from error

    def canonical(self, value: object, *, what: str = "value") -> str:
        """A text that is the same in every process for equal values of the same type, for digests and keys.

        ``1``, ``"1"``, ``True``, ``1.0``, ``None`` and ``""`` all differ. The order of dicts and sets, the
        zone of an instant and the trailing zeros of a Decimal make no difference.

        Raises:
            Unstorable: Something in it cannot be stored.
        """
        try:
            return canonical_text(value, self._extensions)
        except Misfit as misfit:
            _refuse(misfit, what)
        except Exception as error:
            raise _unreadable(error, what) from error

    def roundtrip(self, value: object, *, what: str = "value") -> object:
        """The value as it will be when it is read back: an independent copy; immutable scalars as they are.

        Raises:
            Unstorable: Something in it cannot be stored.
            Undecodable: It was stored, and cannot be read back.
        """
        if type(value) in _IMMUTABLE:
            return value
        return self.loads(self.dumps(value, what=what), what=what)

    def reference(self, record: object) -> RecordRef | None:
        """The reference to a record, or None if it is no record of any adapter.

        Raises:
            Unstorable: The record has no primary key yet.
        """
        return record if isinstance(record, RecordRef) else self._extensions.reference(record)

    def load_record(self, ref: RecordRef, source: object) -> object:
        """Fetch the record that a reference points to.

        Args:
            ref: The reference.
            source: Where to look, as its adapter wants it, such as a SQLAlchemy ``Session``.

        Raises:
            RecordGone: There is no such record any more.
            Undecodable: No adapter of this codec made the reference.
        """
        adapter = self._extensions.adapters.get(ref.adapter)
        if adapter is None:
            raise Undecodable(
                f"the reference to {ref.type} {ref.key!r} was made by the record adapter {ref.adapter!r}, "
                f"which this engine does not have. Give it the adapter that the run was started with."
            )
        return adapter.load(ref, source)

    def _careful_text(self, encoder: type[Encoder], value: object, what: str) -> str:
        try:
            return ENCODER.encode(encoder(self._extensions).encode(value))
        except Misfit as misfit:
            _refuse(misfit, what)
        except Exception as error:
            raise _unreadable(error, what) from error

    def _refuse_size(self, value: object, size: int, what: str, limit: int) -> NoReturn:
        path = self._heaviest(value, size, root_of(what), what)
        most = "" if path == root_of(what) else f", most of it in {path}"
        raise TooLarge(
            f"{what} is too large: {size:,} bytes of JSON where {limit:,} are allowed{most}. "
            f"Keep the data in a table or a file, and store what identifies it.",
            size=size,
            limit=limit,
            path=path,
        )

    def _heaviest(self, value: object, size: int, path: str, what: str) -> str:
        """The path of the smallest part that makes up more than half of the text, as far as that is cheap."""
        children: list[tuple[str, object]] = []
        if type(value) is dict and len(value) <= _MOST_CHILDREN:
            children = [(at_key(key), child) for key, child in value.items()]
        elif type(value) is list and len(value) <= _MOST_CHILDREN:
            children = [(at_index(index), child) for index, child in enumerate(value)]
        for step, child in children:
            weight = _size(self.dumps(child, what=what))
            if weight > size / 2:
                return self._heaviest(child, weight, path + step, what)
        return path


def _unreadable(error: Exception, what: str) -> Unstorable:
    """What comes of the author's own code: an attribute that is computed, a zone, a subclass."""
    return Unstorable(
        f"{what} cannot be stored: reading it raised {type(error).__name__}.", path=root_of(what)
    )


def _size(text: str) -> int:
    """The bytes of the text as JSON in UTF-8: it is stored in ASCII, where other letters take up to thrice that."""
    if "\\u" not in text:
        return len(text)
    plain = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
    return len(plain.encode("utf-8", "surrogatepass"))


def _refuse(misfit: Misfit, what: str) -> NoReturn:
    root = root_of(what)
    raise Unstorable(
        f"{what} cannot be stored: {misfit.sentence(root)}", path=misfit.path(root)
    ) from misfit.__cause__
