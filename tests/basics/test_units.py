"""Quantities are read exactly, refused with the allowed forms, and printed for people."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import UsageError
from et_sim.basics.units import (
    exact_bytes,
    format_bytes,
    format_ns,
    format_ranks,
    parse_bandwidth,
    parse_bytes,
    parse_ranks,
    parse_time_ns,
    strided_ranks,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (1024, 1024),
        (1024.0, 1024),
        ("0", 0),
        ("17B", 17),
        ("64MiB", 64 * 2**20),
        ("1 GB", 10**9),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1.5KiB", 1536),
        ("2TiB", 2**41),
        (" 3 MB ", 3 * 10**6),
        ("1e3", 1000),
        ("0.3KB", 300),
        (".5KiB", 512),
        ("1.3KiB", 1331),
    ],
)
def test_sizes_are_read(text: int | float | str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "1.5", "1.5B", 2.5, "-1", -1, "64 M", "64mib", "1Kb", "nan", True, None, "1e999GB", "1 2 B"],
)
def test_a_bad_size_is_refused_with_the_allowed_forms(text: object) -> None:
    with pytest.raises(UsageError, match=r"size .*allowed: .*64KiB"):
        parse_bytes(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (10, 10.0),
        (936.25, 936.25),
        ("10", 10.0),
        ("1.5us", 1500.0),
        ("3ms", 3e6),
        ("2 s", 2e9),
        ("250ps", 0.25),
        ("1.5\u00b5s", 1500.0),
        ("1.5\u03bcs", 1500.0),
        ("0.1us", 100.0),
        ("7ns", 7.0),
        ("1.5min", 9e10),
        ("1.5h", 5.4e12),
        ("2 d", 1.728e14),
    ],
)
def test_times_are_read(text: int | float | str, expected: float) -> None:
    assert parse_time_ns(text) == expected


@pytest.mark.parametrize(
    "text", ["fast", "1 m", "-3ns", float("nan"), float("inf"), False, "1e400", "9" * 80]
)
def test_a_bad_time_is_refused_with_the_allowed_forms(text: object) -> None:
    with pytest.raises(UsageError, match=r"time .*allowed: .*1.5us"):
        parse_time_ns(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400Gbps", 50.0),
        ("400 Gb/s", 50.0),
        ("400Gbit/s", 50.0),
        ("8bps", 1e-9),
        ("1.6TB/s", 1600.0),
        ("50GB/s", 50.0),
        ("50GiB/s", 53.6870912),
        ("1B/s", 1e-9),
    ],
)
def test_bandwidths_are_bytes_per_ns(text: str, expected: float) -> None:
    assert parse_bandwidth(text) == expected


@pytest.mark.parametrize(
    "text", ["50", "50GB", "50Gb", "GB/s", "0GB/s", "-1GB/s", 50, "50 Gi/s", "1e400GB/s"]
)
def test_a_bad_bandwidth_is_refused_with_the_allowed_forms(text: object) -> None:
    with pytest.raises(UsageError, match=r"bandwidth .*allowed: 400Gbps"):
        parse_bandwidth(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (936.25, "936.25 ns"),
        (1000, "1 \u00b5s"),
        (117780, "117.78 \u00b5s"),
        (1234567, "1.235 ms"),
        (999_999.6, "1 ms"),
        (75_300_000_000, "75.3 s"),
        (3_599_000_000_000, "3599 s"),
        (5_400_000_000_000, "1.5 h"),
        (2**53, "104.25 d"),
        (-1500, "-1.5 \u00b5s"),
        (-0.0001, "0 ns"),
        (float("inf"), "inf ns"),
    ],
)
def test_times_are_printed_for_people(span: float, expected: str) -> None:
    assert format_ns(span) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (10**6, "976.56 KiB"),
        (2**60, "1024 PiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_sizes_are_printed_for_people(count: int, expected: str) -> None:
    assert format_bytes(count) == expected


@given(st.integers(0, 2**62))
def test_a_printed_size_reads_back_within_the_printed_precision(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.006)


@given(st.integers(0, 10**18))
def test_a_printed_time_reads_back_within_the_printed_precision(span: int) -> None:
    assert parse_time_ns(format_ns(span)) == pytest.approx(span, rel=0.0006)


@given(st.integers(0, 1023))
def test_small_sizes_print_exactly(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@given(st.integers(0, 999_999))
def test_times_below_a_millisecond_print_exactly(span: int) -> None:
    assert parse_time_ns(format_ns(span)) == span


@given(
    st.integers(0, 2**40),
    st.sampled_from([("KiB", 2**10), ("MiB", 2**20), ("KB", 1000), ("MB", 10**6), ("B", 1)]),
)
def test_whole_multiples_of_a_unit_are_exact(count: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{count}{unit[0]}") == count * unit[1]


@given(st.text(max_size=20))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    for parse in (parse_bytes, parse_time_ns, parse_bandwidth):
        with contextlib.suppress(UsageError):
            assert parse(text) >= 0


def test_ranks_are_written_as_ranges() -> None:
    assert format_ranks([6, 0, 2, 1, 3]) == "0-3,6"
    assert format_ranks([4]) == "4"
    assert format_ranks([]) == ""


@pytest.mark.parametrize(
    ("size", "expected"),
    [(8 << 20, "8 MiB"), (1536, "1.5 KiB"), (0, "0 B"), ((1 << 40) + 7, "1099511627783 B"), (-5, "-5 B")],
)
def test_a_size_that_rounding_would_change_is_shown_in_bytes(size: int, expected: str) -> None:
    assert exact_bytes(size) == expected


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", [0]),
        ("0-3,6", [0, 1, 2, 3, 6]),
        ("0-6/2", [0, 2, 4, 6]),
        ("1-7/3", [1, 4, 7]),
        ("0-7/3", [0, 3, 6]),
        (" 5 , 2-3 ", [5, 2, 3]),
    ],
)
def test_ranks_are_read(text: str, ranks: list[int]) -> None:
    assert [rank for piece in parse_ranks(text) for rank in piece] == ranks


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "3-1", "0-4/0", "0/2", "1" * 30, "٣", 7, None])
def test_invalid_ranks_are_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="ranks"):
        parse_ranks(text)


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranks_written_with_steps_read_back(ranks: set[int]) -> None:
    read = [rank for piece in parse_ranks(strided_ranks(ranks)) for rank in piece]
    assert read == sorted(ranks)


def test_ranks_equally_far_apart_are_one_range() -> None:
    assert strided_ranks(range(1, 1 << 20, 2)) == "1-1048575/2"
    assert strided_ranks([4, 8]) == "4,8"
