"""Patterns of names that people write, each matched in a time that grows with the name and the pattern alone.

Of a star, `fnmatch` tries the first place that fits, and no other. Regular expressions are those of RE2,
which comes with pyarrow: it has no references to what matched before, and does not look ahead or behind.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Any

_ALSO_SPECIAL = re.compile(r"[?\[]")


def fits_pattern(pattern: str) -> Callable[[str], bool]:
    """Return whether a name fits a pattern in which `*`, `?` and `[…]` stand for others."""
    match = re.compile(fnmatch.translate(pattern)).match
    return lambda name: match(name) is not None


def fits_stars(pattern: str) -> Callable[[str], bool]:
    """Return whether a name fits a pattern in which `*` alone stands for any text."""
    return fits_pattern(_ALSO_SPECIAL.sub(r"[\g<0>]", pattern))


def matching(expression: str, names: Sequence[str]) -> Any:
    """Return which names a regular expression matches as a whole; raise ValueError if it is none."""
    import pyarrow as pa
    from pyarrow import compute

    texts = pa.array([name.encode("utf-8", "replace").decode() for name in names], pa.string())
    try:
        compute.match_substring_regex(pa.array([""]), expression)  # by itself: brackets must not end ours
        fits = compute.match_substring_regex(texts, rf"(?s)\A(?:{expression})\z")
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise ValueError(str(error).removeprefix("Invalid regular expression: ")) from None
    return fits.to_numpy(zero_copy_only=False).astype(bool)
