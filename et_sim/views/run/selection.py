"""Selection of ranks, time and lines that a view shows.

Ranks are not enumerated: each actor is weighted by the number of its selected ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import LONGEST_NS, format_ns, parse_ranks, parse_time_ns
from et_sim.views.run.directory import RunDirectory

T = TypeVar("T")
EXACT = 9  # decimals of seconds: exact to the nanosecond
Window = tuple[int, int]  # first and last nanosecond
WINDOW_FORM = "allowed: two times with a colon between, such as 1ms:2.5ms, 0:500us, or 3ms: to the end"


class Selection(Struct, frozen=True):
    """Selected ranks and window of time (empty or None: all), and the largest number of lines to show."""

    ranks: tuple[range, ...] = ()
    window: Window | None = None
    top: int | None = None

    def weights(self, run: RunDirectory) -> Any:
        """Return the number of selected ranks of every actor whose nodes were recorded."""
        if not self.ranks and not _recorded_ranks(run):
            return run.rank_counts()
        self.check_ranks(run)
        chosen = self.of_actors(run)
        return np.array([EVERYTHING.count(text) if text else 0 for text in chosen], np.int64)

    def of_actors(self, run: RunDirectory) -> list[str]:
        """Return the selected ranks of every actor whose nodes were recorded; empty: none."""
        recorded = Selection(_recorded_ranks(run))
        chosen = map(self.names, run.actors()["ranks"].to_pylist())
        return [recorded.names(text) if text else "" for text in chosen]

    def clipped(self, start_ns: Any, end_ns: Any) -> tuple[Any, Any]:
        """Return times cut to the window; spans outside become empty."""
        if self.window is None:
            return start_ns, end_ns
        return np.clip(start_ns, *self.window), np.clip(end_ns, *self.window)

    def touches(self, start_ns: Any, end_ns: Any) -> Any:
        """Return which spans overlap the window; a span without length must begin in it."""
        if self.window is None:
            return np.ones(len(start_ns), np.bool_)
        first, last = self.window
        return (start_ns < last) & (np.maximum(end_ns, start_ns + 1) > first)

    def heading(self) -> list[str]:
        """Return lines that describe the selection; none if everything is selected."""
        parts = []
        if self.ranks:
            parts.append(_named(self.ranks))
        if self.window is not None:
            first, last = self.window
            until = f" to {format_ns(last, EXACT)}" if last < LONGEST_NS else ""
            parts.append(f"from {format_ns(first, EXACT)}{until}")
        return [f"only {' '.join(parts)}", ""] if parts else []

    def length_ns(self, end_ns: int) -> int:
        """Return the length of the window within a run that ends at `end_ns`."""
        first, last = self.window or (0, end_ns)
        return max(min(last, end_ns) - first, 0)

    def window_of(self, run: RunDirectory) -> Window:
        """Return the window cut to the run's end; it is never empty."""
        first, last = self.window or (0, LONGEST_NS)
        return first, max(min(last, run.summary["makespan_ns"]), first + 1)

    def check_window(self, run: RunDirectory) -> None:
        """Refuse a window that begins after the run has ended."""
        first, _ = self.window or (0, 0)
        end = run.summary["makespan_ns"]
        if first and first >= end:
            begins, ends = format_ns(first, EXACT), format_ns(end, EXACT)
            raise UsageError(
                f"the window begins at {begins}, and the run ends at {ends}",
                place="--window",
                remedy="begin earlier",
            )

    def cut(self, lines: Sequence[T], default: int | None = None) -> Sequence[T]:
        """Return the first lines: as many as `--top` allows, or else `default`."""
        return lines[: self.top or default or len(lines)]

    def names(self, ranks: str) -> str:
        """Return the selected ones of these ranks; empty: none."""
        if not self.ranks:
            return ranks
        pieces = []
        for span in ranks.split(","):
            first, _, last = span.partition("-")
            whole = range(int(first), int(last or first) + 1)
            pieces += [piece for chosen in self.ranks for piece in _pieces(whole, chosen)]
        return ",".join(map(_text, _joined(sorted(pieces))))

    def count(self, ranks: str) -> int:
        """Return the number of these ranks that are selected."""
        count = 0
        for span in ranks.split(","):
            first, _, last = span.partition("-")
            whole = range(int(first), int(last or first) + 1)
            count += sum(_shared(whole, chosen) for chosen in self.ranks) if self.ranks else len(whole)
        return count

    def check_ranks(self, run: RunDirectory) -> None:
        """Refuse ranks that the run does not have."""
        last = max((ranks[-1] for ranks in self.ranks), default=0)
        if last >= run.summary["ranks"]:
            raise UsageError(
                f"there is no rank {last}",
                place="--ranks",
                remedy=f"the last one is {run.summary['ranks'] - 1}",
            )


EVERYTHING = Selection()


def selection(ranks: str | None = None, window: str | None = None, top: int | None = None) -> Selection:
    """Parse options of the command line."""
    if top is not None and top < 1:
        raise UsageError(f"cannot show {top} lines", place="--top", remedy="give a number from 1")
    spans = _disjoint(parse_ranks(ranks)) if ranks is not None else ()
    return Selection(spans, None if window is None else _window(window), top)


def _window(text: str) -> Window:
    begin, colon, end = text.partition(":")
    if not colon:
        raise UsageError(f"window {text!r} cannot be understood", remedy=WINDOW_FORM)
    first = round(parse_time_ns(begin)) if begin.strip() else 0
    last = round(parse_time_ns(end)) if end.strip() else LONGEST_NS
    if last <= first:
        raise UsageError(f"window {text!r} does not end after its begin", remedy=WINDOW_FORM)
    return first, last


def _disjoint(spans: list[range]) -> tuple[range, ...]:
    """Return ranges without ranks that an earlier range contains."""
    kept: list[range] = []
    for span in spans:
        if any(_shared(span, other) for other in kept):
            kept += [range(rank, rank + 1) for rank in span if not any(rank in other for other in kept)]
        else:
            kept.append(span)
    return tuple(kept)


def _shared(span: range, other: range) -> int:
    """Return the number of values that both ranges contain."""
    if span.step != 1:
        span, other = other, span
    if span.step != 1:  # both have a step
        return sum(number in other for number in span)
    first = max(span[0], other[0])
    first += (other[0] - first) % other.step
    last = min(span[-1], other[-1])
    return max((last - first) // other.step + 1, 0)


def _pieces(whole: range, chosen: range) -> list[tuple[int, int]]:
    """Return the values in both ranges as (first, end) pairs."""
    if chosen.step != 1:
        return [(rank, rank + 1) for rank in chosen if rank in whole]
    first, last = max(whole[0], chosen[0]), min(whole[-1], chosen[-1])
    return [(first, last + 1)] if first <= last else []


def _joined(pieces: Sequence[tuple[int, int]]) -> list[range]:
    """Join ascending pieces that touch."""
    spans: list[range] = []
    for first, end in pieces:
        begin = spans.pop().start if spans and spans[-1].stop == first else first
        spans.append(range(begin, end))
    return spans


def _named(spans: Sequence[range]) -> str:
    """Return `rank 3`, or `ranks 0-3,6`."""
    name = "rank" if len(spans) == len(spans[0]) == 1 else "ranks"
    return f"{name} {','.join(map(_text, spans))}"


def _text(ranks: range) -> str:
    if len(ranks) == 1:
        return str(ranks[0])
    return f"{ranks[0]}-{ranks[-1]}" + (f"/{ranks.step}" if ranks.step > 1 else "")


def recorded_part(run: RunDirectory) -> str:
    """Return ranks and time whose nodes were written, such as `ranks 0-3 from 1 ms`; empty if all were."""
    kept = run.manifest.get("recorded_part", {})
    parts = [_named(_recorded_ranks(run))] if "ranks" in kept else []
    if "window_ns" in kept:
        first, last = kept["window_ns"]
        parts.append(f"from {format_ns(first)}" + (f" to {format_ns(last)}" if last < LONGEST_NS else ""))
    return " ".join(parts)


def recorded_actors(run: RunDirectory) -> Any:
    """Return, by actor, whether its nodes were recorded."""
    return EVERYTHING.weights(run) > 0


def _recorded_ranks(run: RunDirectory) -> tuple[range, ...]:
    """Return the ranks whose nodes were written; none: those of all ranks."""
    kept = run.manifest.get("recorded_part", {}).get("ranks")
    return _disjoint(parse_ranks(kept)) if kept else ()
