"""Patterns of names from users, matched in a time proportional to the name and the pattern.

For a star, `fnmatch` tries only the first place that fits. Regular expressions are those of RE2, which comes
with pyarrow: without back-references, look-ahead and look-behind.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Any

_ALSO_SPECIAL = r"[?\[]"


def fits_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches names with a pattern of `*`, `?` and `[…]`."""
    match = re.compile(fnmatch.translate(pattern)).match
    return lambda name: match(name) is not None


def fits_stars(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches names with a pattern in which `*` stands for any text."""
    return fits_pattern(re.sub(_ALSO_SPECIAL, r"[\g<0>]", pattern))


def matching(expression: str, names: Sequence[str]) -> Any:
    """Return which names a regular expression matches completely; raise ValueError if it is invalid."""
    import pyarrow as pa
    from pyarrow import compute

    texts = pa.array([name.encode("utf-8", "replace").decode() for name in names], pa.string())
    try:
        compute.match_substring_regex(pa.array([""]), expression)  # alone, because brackets must not end ours
        fits = compute.match_substring_regex(texts, rf"(?s)\A(?:{expression})\z")
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise ValueError(str(error).removeprefix("Invalid regular expression: ")) from None
    return fits.to_numpy(zero_copy_only=False).astype(bool)
