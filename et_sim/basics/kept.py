"""Values that follow from what several runs share, kept from one run to the next.

A value is kept for the arguments of the function that makes it: numbers and texts are compared, and all other
arguments are the same objects, which nothing may change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

MOST_KEPT = 48  # values, before all of them are dropped; a run needs about 20
COMPARED = (int, str, bytes)

Value = TypeVar("Value")


class Kept:
    """The values, each made once for the same arguments."""

    def __init__(self) -> None:
        self._values: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def of(self, make: Callable[..., Value], subject: Any, *given: Any, alike: str = "") -> Value:
        """Return `make(subject, *given)`, which is the same for all subjects that are `alike`."""
        place = make, alike, *[one if type(one) in COMPARED else id(one) for one in given]
        known = self._values.get(place)
        if known is None:
            if len(self._values) >= MOST_KEPT:
                self._values.clear()
            # `given` is held, too, so that no other object gets the identity of one of them.
            known = self._values[place] = given, make(subject, *given)
        value: Value = known[1]
        return value


def with_parts_of(before: Any, after: Any) -> Any:
    """Return a value with the equal parts of another one in place of its own, so that they are the same."""
    if before is after or type(before) is not type(after):
        return after
    if isinstance(after, np.ndarray):
        return before if before.dtype == after.dtype and np.array_equal(before, after) else after
    if isinstance(after, Struct):
        pairs = [(name, getattr(before, name), getattr(after, name)) for name in after.__struct_fields__]
        parts = {name: with_parts_of(old, new) for name, old, new in pairs}
        if all(parts[name] is old for name, old, _ in pairs):
            return before
        return replace(after, **parts)
    return before if before == after else after
