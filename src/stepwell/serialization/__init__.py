"""Values to text and back: arguments, results, context, keys. Never pickle.

The text is ASCII JSON. What JSON has no word for is written as ``{"~": tag, "v": payload}``; what cannot be
read back as the same value of the same type is refused where it is given.
"""

from __future__ import annotations

from stepwell.serialization.classes import find_class, stable_name
from stepwell.serialization.codec import Codec
from stepwell.serialization.records import RecordAdapter, RecordRef

__all__ = ["Codec", "RecordAdapter", "RecordRef", "find_class", "stable_name"]
