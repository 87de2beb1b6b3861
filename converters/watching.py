"""Progress of long work: a line on stderr now and then, and none if it is done soon."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 2.0


def watched(items: Iterable[Item], count: int, noun: str) -> Iterator[Item]:
    """The items; says `et-convert: 3 of 8 files` every other second. The consumer's time counts."""
    said = time.monotonic()
    for number, item in enumerate(items):
        yield item
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            sys.stderr.write(f"et-convert: {number + 1:,} of {count:,} {noun}\n")
