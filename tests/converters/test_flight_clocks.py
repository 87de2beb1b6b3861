"""Dumps bound the clocks of their ranks by the order of issues and completions, and state how far."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from converters.recordings.flight.clocks import UNKNOWN, ClockBounds, clock_bounds
from converters.recordings.flight.dumps import Dump, Entry
from converters.recordings.flight.groups import operations
from converters.recordings.flight.report import explain

MS = 1_000_000
EPOCH = 1_700_000_000_000 * MS
POLL = 100 * MS  # between two looks of the watchdog


def entry(number: int, issued: int, found: int | None, name: str = "nccl:all_reduce") -> Entry:
    """Return an entry of a collective of all ranks."""
    return Entry(
        number - 1, 0, ("0", "default_pg"), number, profiling_name=name, time_created_ns=issued,
        state="started" if found is None else "completed", retired=found is not None,
        time_discovered_completed_ns=found, input_sizes=[[4]], input_dtypes=["Float"],
    )  # fmt: skip


def dump(rank: int, entries: Sequence[Entry]) -> Dump:
    return Dump(rank, Path(f"rank_{rank}"), "2.4", {}, {}, list(entries))


def bounds(dumps: Sequence[Dump]) -> ClockBounds:
    found = clock_bounds(dumps, operations(dumps))
    assert found is not None
    return found


def job(seed: int, ranks: int, offsets: Sequence[int]) -> list[Dump]:
    """Return the dumps of operations that complete when the last rank has issued them."""
    chance, now = random.Random(seed), 0
    entries: list[list[Entry]] = [[] for _ in range(ranks)]
    for number in range(1, 40):
        issued = [now + chance.randrange(30 * MS) for _ in range(ranks)]
        now = max(issued) + chance.randrange(MS)
        for rank, offset in enumerate(offsets):
            found = now + chance.randrange(POLL)
            entries[rank].append(entry(number, EPOCH + issued[rank] + offset, EPOCH + found + offset))
    return [dump(rank, of) for rank, of in enumerate(entries)]


def test_bounds_are_the_times_from_issue_to_discovery() -> None:
    first = dump(0, [entry(1, EPOCH, EPOCH + 50)])
    second = dump(1, [entry(1, EPOCH + 1010, EPOCH + 1080)])
    found = bounds([first, second])
    # The second is ahead by no more than 1,080 - 0, and by no less than 1,010 - 50.
    assert (found.low_ns.tolist(), found.high_ns.tolist()) == ([0, 960], [0, 1080])
    assert found.ahead_ns(1) == 1020
    assert list(found.notes()) == [
        "the clock of rank 1 is 960 ns to 1.08 µs ahead of that of rank 0: times are corrected"
    ]


def test_a_third_clock_bounds_two_that_share_no_operation() -> None:
    def of_pair(record: int, issued: int, found: int) -> Entry:
        whole = entry(1, EPOCH + issued, EPOCH + found)
        return replace(whole, record_id=record, pg_id=1, process_group=("1", "pair"))

    one = entry(1, EPOCH, EPOCH + 10)
    found = bounds([dump(0, [one]), dump(1, [one, of_pair(1, 20, 30)]), dump(2, [of_pair(0, 520, 535)])])
    # Clocks 0 and 1 are within 10, and clock 2 is ahead of 1 by 520 - 30 to 535 - 20.
    assert (int(found.low_ns[2]), int(found.high_ns[2])) == (490 - 10, 515 + 10)


@given(
    st.integers(0, 10**9), st.lists(st.integers(-3600 * 1000 * MS, 3600 * 1000 * MS), min_size=2, max_size=5)
)
def test_true_offsets_lie_within_the_bounds(seed: int, offsets: list[int]) -> None:
    found = bounds(job(seed, len(offsets), offsets))
    assert found.is_consistent
    for rank, offset in enumerate(offsets):
        assert found.low_ns[rank] <= offset - offsets[0] <= found.high_ns[rank]
        assert found.high_ns[rank] - found.low_ns[rank] <= 2 * (POLL + 31 * MS)


def test_a_broadcast_bounds_no_clock() -> None:
    dumps = [dump(rank, [entry(1, EPOCH, EPOCH + 10, "nccl:broadcast")]) for rank in range(2)]
    found = bounds(dumps)
    assert found.high_ns[1] == UNKNOWN
    assert next(iter(found.notes())).startswith(
        "clocks of rank 1 cannot be compared with that of rank 0: no operation"
    )


def test_a_clock_that_was_set_is_noticed() -> None:
    before, after = job(1, 2, [0, 0]), job(2, 2, [0, 10_000 * MS])
    later = 100_000 * MS
    dumps = []
    for rank in range(2):
        moved = [
            entry(
                40 + each.collective_seq_id,
                each.time_created_ns + later,
                (each.time_discovered_completed_ns or 0) + later,
            )
            for each in after[rank].entries
        ]
        dumps.append(dump(rank, [*before[rank].entries, *moved]))
    found = bounds(dumps)
    assert not found.is_consistent
    assert found.ahead_ns(1) == 0
    assert list(found.notes()) == [
        "the times contradict each other: a clock was set, or drifts, in the recorded time"
    ]


@pytest.mark.parametrize("ahead", [0, 5000 * MS])
def test_times_of_the_report_are_corrected_where_clocks_disagree(ahead: int) -> None:
    dumps = [dump(rank, [*of.entries]) for rank, of in enumerate(job(3, 3, [0, ahead, 0]))]
    last = max(of.entries[-1].time_created_ns for of in dumps[::2]) + 1000 * MS
    for rank in (0, 2):
        dumps[rank].entries.append(entry(40, last, None))
    report = explain(dumps)
    assert (report.kind, report.ranks) == ("missing", (1,))
    (line,) = report.last
    before = float(line.split(", ")[-1].split()[0])
    assert "s before the last one" in line
    assert before == pytest.approx(1.0, abs=0.15)
    assert any("ahead of that of rank 0: times are corrected" in note for note in report.notes) == bool(ahead)
    assert any(note.startswith("clocks of ") and "ranks differ by at most" in note for note in report.notes)


def test_a_clock_with_a_bound_on_one_side_is_not_corrected() -> None:
    hung = dump(0, [entry(1, EPOCH + 10_000 * MS, None)])
    found = bounds([hung, dump(1, [entry(1, EPOCH, EPOCH + 50 * MS)])])
    assert found.ahead_ns(1) == 0
    assert [note for note in found.notes() if "corrected" in note] == []
