"""GOAL texts in their plainest form are read as columns, with the same result as statement by statement."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from goal_texts import (
    direct,
    dissemination,
    incast,
    linear_all_to_all,
    rank_texts,
    ring_all_reduce,
    traces_of,
)
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import TraceError
from et_sim.trace import encode_trace
from et_sim.trace.columns import Trace
from et_sim.trace.goal import columns as goal_columns
from et_sim.trace.goal import file as goal_file
from et_sim.trace.goal.columns import MOST_UNMATCHED, columns_of
from et_sim.trace.goal.file import schedules
from et_sim.trace.goal.schedule import Reading, Totals, stack_of_ranks

MIXED = rank_texts(
    3,
    [
        [
            "a: calc 1500 cpu 0",
            "b_1: send 8b to 2 tag 1 cpu 0 nic 0",
            "b_1 requires a",
            "calc 7",
            "tag: calc 1",
        ],
        [],
        ["recv 8b from 0 tag 1", "send: calc 2", "calc: calc 3", "calc requires send", "calc requires send"],
    ],
)
TEXTS = {
    "mixed": MIXED,
    "blanks": MIXED.replace(" ", " \t").replace("\n", "  \n\n "),
    "ring": ring_all_reduce(5, 4096),
    "incast": incast(4, 8),
    "direct": direct(4, 64, 2),
    "all-to-all": linear_all_to_all(4, 8),
    "dissemination": dissemination(16, 8),
    "long labels": rank_texts(
        1,
        [
            [
                "a23456789012345x: calc 1",
                "a23456789012345y: calc 2",
                "a23456789012345y requires a23456789012345x",
            ]
        ],
    ),
}


def read(path: Path, text: str, totals: Totals) -> list[bytes]:
    path.write_bytes(text.encode())
    by_rank = dict(schedules(path, totals))
    assert [trace.source for _, trace in sorted(by_rank.items())] == [
        f"{path}, rank {rank}" for rank in range(len(by_rank))
    ]
    return [encode_trace(trace) for _, trace in sorted(by_rank.items())]


@pytest.mark.parametrize("name", TEXTS)
def test_columns_equal_statements(name: str, tmp_path: Path) -> None:
    text = TEXTS[name]
    assert columns_of(text.encode(), 1) is not None
    found, wanted = Totals(), Totals()
    files = read(tmp_path / "a.goal", text, found)
    assert files == [encode_trace(trace) for trace in traces_of(text, wanted)]
    assert found == wanted


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("bytes_at_once", [7, 60, 1 << 20])
def test_ranks_in_another_form_are_read_as_well_wherever_they_stand(
    position: int, bytes_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goal_file, "_BYTES_AT_ONCE", bytes_at_once)
    bodies = [["a: calc 5", "b: calc 6"] for _ in range(3)]
    bodies[position].append("b requires a // after it")
    text = rank_texts(3, bodies)
    assert columns_of(text.encode(), 1) is None
    wanted = [encode_trace(trace) for trace in traces_of(text)]
    assert read(tmp_path / "a.goal", "\ufeff" + text, Totals()) == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        "calc",
        "calc x",
        "calc 5 cpu",
        "calc 5 cpu 1",
        "calc 5 nic 0",
        "send 8b to 0 cpu 0 tag 1",
        "a:",
        "send 8 to 0",
        "recv 8b to 0",
        "1a: calc 5",
        ": calc 5",
        "a: b: calc 5",
        "b requires a",
        "l requires l",
        "l irequires l",
        "l requires l l",
        "calc 12345678901234567",
        "}",
        "rank 1 {",
        "num_ranks 1",
        "l: calc 5",
    ],
)
def test_possible_faults_are_left_to_statements(wrong: str) -> None:
    text = f"num_ranks 2\nrank 0 {{\nl: calc 5\n{wrong}\n}}\n"
    assert columns_of(text.encode(), 1) is None
    assert columns_of(text.replace(f"\n{wrong}\n", "\n").encode(), 1) is not None


@given(st.integers(0, len(MIXED) - 1), st.sampled_from(" \t\n:{}_ab01#\r\xe9"))
def test_a_text_with_a_changed_letter_is_read_as_by_statements(at: int, letter: str) -> None:
    text = MIXED[:at] + letter + MIXED[at + 1 :]
    columns, reading = columns_of(text.encode(), 1), Reading("<text>", Totals())
    if columns is None or not reading.accepts(columns):
        return
    reading.add(columns)
    ranks, stack = columns.rank.tolist(), stack_of_ranks(columns, reading.source)

    def by_columns() -> list[Trace]:
        reading.check_end()
        found = dict(zip(ranks, stack.traces, strict=True))
        return [found[rank] for rank in sorted(found)]

    assert _outcome(by_columns) == _outcome(lambda: traces_of(text))


def _outcome(traces: Callable[[], list[Trace]]) -> list[bytes] | str:
    """Return the encoded traces, or the message without the name of the file."""
    try:
        return [encode_trace(trace) for trace in traces()]
    except TraceError as error:
        return str(error).partition(",")[2]


@pytest.mark.parametrize("bytes_at_once", [1, 40, 1 << 20])
def test_a_mistake_after_correct_ranks_is_reported_with_its_line(
    bytes_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goal_file, "_BYTES_AT_ONCE", bytes_at_once)
    with pytest.raises(TraceError, match=r"line 9: send to rank 7, which does not exist"):
        read(tmp_path / "a.goal", rank_texts(2, [["calc 5", "calc 6"], ["send 1b to 7"]]), Totals())


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans()), max_size=30))
def test_the_first_message_without_a_partner_is_named_for_any_limit(
    messages: list[tuple[int, int, bool]],
) -> None:
    """Name the first message after the last line at which its channel was balanced."""
    lines = [
        f"{'send' if is_send else 'recv'} 8b {'to' if is_send else 'from'} {1 - rank} tag {tag}"
        for rank, tag, is_send in messages
    ]
    order = sorted(range(len(messages)), key=lambda at: messages[at][0])
    bodies = [["calc 1", *(lines[at] for at in order if messages[at][0] == rank)] for rank in (0, 1)]
    surplus: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for number, at in enumerate(order):
        rank, tag, is_send = messages[at]
        channel = (rank if is_send else 1 - rank, tag)
        before = surplus.get(channel, 0)
        surplus[channel] = before + (1 if is_send else -1)
        if before == 0:
            first[channel] = number + (5 if rank == 0 else 9)
    wanted = min((first[channel] for channel, left in surplus.items() if left), default=None)
    for most in (1, MOST_UNMATCHED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(goal_columns, "MOST_UNMATCHED", most)
            expected: Any = (
                nullcontext() if wanted is None else pytest.raises(TraceError, match=f"line {wanted}: ")
            )
            with expected:
                traces_of(rank_texts(2, bodies))
