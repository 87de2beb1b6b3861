"""Quantities in text: sizes, times and rates such as "64MiB" or "1.5us", counts, and ranks such as "0-3,6".

Reading is exact (rational arithmetic, rounded once at the end). The unit of a bare number in a configuration
file belongs to its key.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

# The exponent has at most three digits, so that no text makes an astronomically long integer.
_QUANTITY = r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+(?:[eE][+-]?\d{1,3})?)\s*(\S*)\s*"
_LONGEST_TEXT = 64
_RANKS = r"\s*(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?\s*"

_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY_PREFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_BYTES: Mapping[str, int] = MappingProxyType({f"{p}B": f for p, f in (_PREFIXES | _BINARY_PREFIXES).items()})
_BITS: Mapping[str, int] = MappingProxyType(
    {f"{p}{bit}": f for p, f in _PREFIXES.items() for bit in ("bps", "b/s", "bit/s")}
)
_PICOSECONDS: Mapping[str, int] = MappingProxyType(
    # Both code points that print as a small mu are in use: the micro sign and the Greek letter.
    {"ps": 1, "ns": 10**3, "us": 10**6, "\u00b5s": 10**6, "\u03bcs": 10**6, "ms": 10**9, "s": 10**12}
    | {"min": 60 * 10**12, "h": 3600 * 10**12, "d": 86400 * 10**12}
)

_BYTES_FORMS = "allowed: a number of bytes such as 1024, or 512B, 64KB, 1.5GB (powers of 1000), 64KiB, 1.5GiB"
_WATTS: Mapping[str, int] = MappingProxyType({"W": 1, "kW": 10**3, "MW": 10**6})

_TIME_FORMS = "allowed: a number of nanoseconds such as 10, or 10ns, 1.5us, 3ms, 2s, 5min, 1h, 2d"
_WATTS_FORMS = "allowed: a power with its unit, such as 700W or 1.2kW"
_RANKS_FORMS = 'allowed: ranks and ranges such as "0-3,6", or "0-14/2" for every second one'
_BANDWIDTH_FORMS = (
    "allowed: 400Gbps or 400Gb/s (bits, powers of 1000), 50GB/s, 1.6TB/s (bytes, powers of 1000), 50GiB/s"
)


# Beyond these a double no longer counts every nanosecond and byte, and nothing real is that long or large.
LONGEST_NS = 2**53
NS_PER_SECOND = 1_000_000_000
MOST_BYTES = 2**53
MOST_RANGES = 6  # of ranks that a sentence lists


def parse_bytes(value: int | float | str) -> int:
    """Return a size in bytes; a fraction of a larger unit is rounded to the nearest byte."""
    number, unit = _split("size", value, _BYTES_FORMS)
    if unit in ("", "B"):
        if number.denominator != 1:
            raise _refused("size", value, _BYTES_FORMS, "is not a whole number of bytes")
        size = int(number)
    elif unit in _BYTES:
        size = round(number * _BYTES[unit])
    else:
        raise _refused("size", value, _BYTES_FORMS)
    if size >= 2**63:
        raise _refused("size", value, _BYTES_FORMS, "is larger than 2^63 - 1 bytes")
    return size


def parse_time_ns(value: int | float | str) -> float:
    """Return a time span in nanoseconds."""
    number, unit = _split("time", value, _TIME_FORMS)
    unit = unit or "ns"
    if unit not in _PICOSECONDS:
        raise _refused("time", value, _TIME_FORMS)
    return _as_float(number * _PICOSECONDS[unit] / 1000, "time", value, _TIME_FORMS)


def parse_watts(text: str) -> float:
    """Return a power in watts; the unit is compulsory."""
    number, unit = _split("power", text, _WATTS_FORMS)
    if unit not in _WATTS:
        raise _refused("power", text, _WATTS_FORMS, "" if unit else "has no unit")
    return _as_float(number * _WATTS[unit], "power", text, _WATTS_FORMS)


def parse_bandwidth(text: str) -> float:
    """Return a bandwidth in bytes per nanosecond; the unit is compulsory."""
    number, unit = _split("bandwidth", text, _BANDWIDTH_FORMS)
    per_second = unit.removesuffix("/s")
    if unit in _BITS:
        bytes_per_second = number * _BITS[unit] / 8
    elif unit.endswith("/s") and per_second in _BYTES:
        bytes_per_second = number * _BYTES[per_second]
    else:
        cause = "" if unit else "has no unit"
        raise _refused("bandwidth", text, _BANDWIDTH_FORMS, cause)
    if not bytes_per_second:
        raise _refused("bandwidth", text, _BANDWIDTH_FORMS, "must be more than zero")
    return _as_float(bytes_per_second / 10**9, "bandwidth", text, _BANDWIDTH_FORMS)


def format_bytes(count: int | float) -> str:
    """Return a size for people, in powers of 1024 with at most two decimals: `1.5 KiB`."""
    return _format(count, (("B", 1), *((f"{p}B", f) for p, f in _BINARY_PREFIXES.items())), decimals=2)


def exact_bytes(size: int) -> str:
    """Return `8 MiB` if that is exact, else plain bytes, so that different sizes look different."""
    text = format_bytes(size)
    try:
        is_exact = parse_bytes(text) == size
    except UsageError:  # a negative size, or one beyond 63 bits
        is_exact = False
    return text if is_exact else f"{size} B"


def memory_text(usable: int, reserved: int) -> str:
    """Return a text for the usable part of a memory, with its reserved part."""
    if not reserved:
        return exact_bytes(usable)
    whole = format_bytes(usable + reserved)
    return f"{format_bytes(usable)} (of {whole}, {format_bytes(reserved)} are reserved)"


def format_ns(span: int | float, decimals: int = 3) -> str:
    """Return a time span for people, by default with at most three decimals: `117.78 \u00b5s`."""
    units = (("ns", 1), ("\u00b5s", 10**3), ("ms", 10**6), ("s", 10**9))
    return _format(span, (*units, ("h", 3600 * 10**9), ("d", 86400 * 10**9)), decimals=decimals)


def format_watts(power: float) -> str:
    """Return a power for people, with at most two decimals: `1.2 kW`."""
    return _format(power, (("W", 1), ("kW", 10**3), ("MW", 10**6)), decimals=2)


def format_joules(energy: float) -> str:
    """Return an energy in the unit that reads best."""
    units = (("\u00b5J", 1), ("mJ", 10**3), ("J", 10**6), ("kJ", 10**9), ("MJ", 10**12), ("GJ", 10**15))
    return _format(energy * 1e6, units, decimals=2)


def format_bandwidth(bytes_per_ns: float) -> str:
    """Return a bandwidth for people, in powers of 1000: `50 GB/s`."""
    units = (("B/s", 1), ("kB/s", 10**3), ("MB/s", 10**6), ("GB/s", 10**9), ("TB/s", 10**12))
    return _format(bytes_per_ns * 1e9, units, decimals=2)


def _split(quantity: str, value: int | float | str, forms: str) -> tuple[Fraction, str]:
    """Return the exact number, and the unit text behind it."""
    from fractions import Fraction

    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refused(quantity, value, forms)
    if not isinstance(value, str):
        if (isinstance(value, float) and not math.isfinite(value)) or value < 0:
            raise _refused(quantity, value, forms, "must be finite and not negative")
        return Fraction(value), ""
    match = re.fullmatch(_QUANTITY, value, re.ASCII) if len(value) <= _LONGEST_TEXT else None
    if match is None:
        raise _refused(quantity, value, forms)
    return Fraction(match[1]), match[2]


def _as_float(number: Fraction, quantity: str, value: int | float | str, forms: str) -> float:
    try:
        return float(number)
    except OverflowError:
        raise _refused(quantity, value, forms, "is too large") from None


def _refused(quantity: str, value: object, forms: str, cause: str = "cannot be understood") -> UsageError:
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}..."
    return UsageError(f"{quantity} {shown} {cause or 'cannot be understood'}", remedy=forms)


def _format(value: int | float, units: tuple[tuple[str, int], ...], *, decimals: int) -> str:
    """Return `value` in the largest unit of which it holds at least one after rounding."""
    if not math.isfinite(value):
        return f"{value} {units[0][0]}"
    for position, (unit, factor) in enumerate(units):
        rounded = round(value / factor, decimals)
        last = position + 1 == len(units)
        if last or abs(rounded) < units[position + 1][1] / factor:
            text = f"{rounded:.{decimals}f}".rstrip("0").rstrip(".")
            return f"{text.removeprefix('-') if rounded == 0 else text} {unit}"
    raise AssertionError("the last unit takes every value")


def rank_ranges(ranks: Iterable[int]) -> list[str]:
    """Return ranks as ascending ranges: ["0-3", "6"]."""
    import numpy as np

    ordered = ranks if isinstance(ranks, np.ndarray) and len(ranks) == 1 else _ascending(ranks)
    if len(ordered) < 2:
        return [str(rank) for rank in ordered.tolist()]
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.concatenate(([0], breaks + 1))].tolist()
    lasts = ordered[np.concatenate((breaks, [len(ordered) - 1]))].tolist()
    runs = zip(firsts, lasts, strict=True)
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def _ascending(ranks: Iterable[int]) -> Any:
    import numpy as np

    given = np.asarray(ranks) if isinstance(ranks, np.ndarray | range) else np.fromiter(ranks, np.int64)
    return np.unique(given) if (np.diff(given) <= 0).any() else given


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as short text: "0-3,6"."""
    return ",".join(rank_ranges(ranks))


def ranks_text(ranks: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0-3,6`; many scattered ranks are cut short and counted."""
    known = list(ranks)
    if len(known) == 1:
        return f"rank {known[0]}"
    ranges = rank_ranges(known)
    if len(ranges) <= MOST_RANGES:
        return f"ranks {','.join(ranges)}"
    return f"ranks {','.join(ranges[:MOST_RANGES])},… ({len(known)} in all)"


def strided_ranks(ranks: Iterable[int]) -> str:
    """Return text like `format_ranks`; equally spaced ranks become "0-14/2": every second one."""
    import numpy as np

    ordered = _ascending(ranks)
    step = int(ordered[1] - ordered[0]) if len(ordered) > 2 else 1
    if step > 1 and bool((np.diff(ordered) == step).all()):
        return f"{ordered[0]}-{ordered[-1]}/{step}"
    return format_ranks(ordered)


def parse_ranks(text: str) -> list[range]:
    """Return the ranks of "0-3,6,8-14/2", as ascending ranges in the given order."""
    pieces = (
        [re.fullmatch(_RANKS, piece, re.ASCII) for piece in text.split(",")]
        if isinstance(text, str)
        else [None]
    )
    spans = []
    for piece in pieces:
        if piece is None:
            raise _refused("ranks", text, _RANKS_FORMS)
        first, step = int(piece[1]), int(piece[3] or 1)
        last = first if piece[2] is None else int(piece[2])
        if last < first or step < 1:
            cause = f"has the empty range {piece[0].strip()}" if last < first else "has a step of 0"
            raise _refused("ranks", text, _RANKS_FORMS, cause)
        spans.append(range(first, last + 1, step))
    return spans


def rank_mask(pieces: Iterable[range] | None, ranks: int) -> Any:
    """Return for each rank whether `pieces` contain it; None contains all."""
    import numpy as np

    mask = np.full(ranks, pieces is None)
    for piece in pieces or ():
        mask[piece.start : piece.stop : piece.step] = True
    return mask


def plural(count: int, singular: str, many: str = "") -> str:
    """Return a text such as `1 rank`, `2 ranks`, `1,024 ranks`."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"
