"""Flight-recorder dumps: hangs that really happened are named right, and pickles run no code."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converters.cli import main
from converters.recordings.flight.dumps import Dump, Entry, Group, Status, read_dumps
from converters.recordings.flight.pickle_values import plain_values
from converters.recordings.flight.report import HangReport, explain
from et_sim.basics.errors import InputError

DATA = Path(__file__).parent / "data" / "flight_recorder"
# Way of the hang; kind, ranks at fault, operation, number: each is what `train.py` does.
HANGS = {
    "missing": ("missing", (1,), "all_reduce", 3),
    "order": ("order", (1,), "all_reduce", 3),
    "size": ("size", (1,), "all_reduce", 3),
    "dead": ("dead", (1,), "all_reduce", 3),
    "message": ("missing", (0,), "all_reduce", 3),
    "crossed": ("crossed", (0, 1), "all_reduce", 3),
    "overwritten": ("missing", (1,), "all_reduce", 13),
}


def report_of(way: str, form: str = ".") -> HangReport:
    """Return the report on a hang that really happened."""
    return explain(read_dumps(sorted((DATA / form / way).iterdir())))


def line_of(text: str) -> int:
    """Return the line of the program that hung which has a text."""
    lines = (DATA / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("form", [".", "json"])
def test_hangs_that_happened_are_named_right(form: str) -> None:
    for way, (kind, ranks, operation, number) in HANGS.items():
        report = report_of(way, form)
        found = (report.kind, report.ranks, report.operation, report.number, report.group)
        assert (way, *found) == (way, kind, ranks, operation, number, "default_pg")


def test_the_lines_are_those_of_the_program() -> None:
    inner, outer = line_of("dist.all_reduce(x)"), line_of("        average()")
    place = f"/tmp/job/train.py:{inner} (average), called from line {outer + 0} (check_loss)"
    waits = report_of("missing").waits
    assert len(waits) == 1
    assert waits[0].startswith("ranks 0,2 wait for rank 1 in all_reduce 3 of default_pg (16 Float), at ")
    assert place.partition(", called")[0] in waits[0]
    order = report_of("order").waits
    assert f"/tmp/job/train.py:{line_of('dist.broadcast(x, 0)')} (check_loss)" in order[1]


def test_sizes_and_operations_that_differ_are_both_stated() -> None:
    assert report_of("size").cause.endswith("with 8 Float, and ranks 0,2 with 16 Float")
    assert report_of("order").cause.endswith("rank 1 came to broadcast, and ranks 0,2 to all_reduce")


def test_what_a_dump_cannot_show_is_stated() -> None:
    assert "the buffers of ranks 0-2 were full" in " ".join(report_of("overwritten").notes)
    assert "rank 1 left no dump" in report_of("dead").notes
    assert "JSON dumps have none" in " ".join(report_of("missing", "json").notes)


def test_the_command_prints_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted((DATA / "missing").iterdir()):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main(["recording", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["2 of 3 ranks wait: rank 1 never came to all_reduce 3 of default_pg", "Waiting:"]
    assert main(["recording", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == "1"


class Harmful:
    """An object whose pickle makes a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {MARK}",)


MARK = "/tmp/et-sim-test-pickle-was-run"
HARMFUL = (
    pickle.dumps({"entries": [Harmful()]}),
    pickle.dumps({"entries": [Harmful()]}, protocol=0),
    b"\x80\x02X\x07\x00\x00\x00entries0cos\nsystem\n(S'touch " + MARK.encode() + b"'\ntR.",
    b"\x80\x02X\x07\x00\x00\x00entries0(S'touch " + MARK.encode() + b"'\nios\nsystem\n.",
    b"\x80\x04\x8c\x07entries0\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
)


@pytest.mark.parametrize("content", HARMFUL)
def test_no_code_of_a_pickle_is_run(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(MARK).unlink(missing_ok=True)
    (tmp_path / "trace_rank_0").write_bytes(content)
    assert main(["recording", str(tmp_path)]) == 2
    assert "may hold plain values only" in capsys.readouterr().err or content[:1] != b"\x80"
    assert not Path(MARK).exists()


PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_those_that_pickle_reads(value: Any, protocol: int) -> None:
    assert plain_values(pickle.dumps(value, protocol=protocol)) == value


def test_a_value_that_grows_endlessly_or_holds_itself_is_refused() -> None:
    value: list[Any] = [0] * 10
    for _ in range(12):
        value = [value] * 10
    endless: list[Any] = []
    endless.append(endless)
    for grown, cause in ((value, "too large"), (endless, "contains itself")):
        with pytest.raises(ValueError, match=cause):
            plain_values(pickle.dumps(grown))


def entry(
    number: int, record: int, over: bool, *, group: str = "0", name: str = "nccl:all_reduce", size: int = 4
) -> Entry:
    """Return an entry of a collective."""
    label = "default_pg" if group == "0" else "undefined"
    return Entry(record, int(group), (group, label), number, profiling_name=name, retired=over,
                 state="completed" if over else "started", input_sizes=[[size]], input_dtypes=["Float"],
                 time_created_ns=1000 * record)  # fmt: skip


def dump(rank: int, entries: Iterable[Entry], ranks: int = 4, kept: int = 100) -> Dump:
    """Return the dump of a rank whose buffer keeps the last entries."""
    groups = {"0": Group("0", "default_pg", str(list(range(ranks)))), "1": Group("1", "", "[0, 1]")}
    return Dump(rank, Path(f"rank_{rank}"), "2.4", groups, {}, list(entries)[-kept:])


def hang(random_: random.Random) -> tuple[list[Dump], str, tuple[int, ...], int]:
    """Return the dumps of a random hang: its kind, the ranks at fault, and the number of the operation."""
    ranks = random_.randint(3, 6)
    culprit, number = random_.randrange(ranks), random_.randint(2, 9)
    kind = random_.choice(["missing", "order", "size", "dead", "stuck"])
    dumps = []
    for rank in range(ranks):
        entries = [entry(at, at - 1, True) for at in range(1, number)]
        changed: dict[str, Any] = {}
        if rank == culprit:
            changed = {"order": {"name": "nccl:broadcast"}, "size": {"size": 8}}.get(kind, {})
        if kind not in ("missing", "dead") or rank != culprit:
            entries.append(entry(number, number - 1, False, **changed))
        if kind != "dead" or rank != culprit:
            dumps.append(dump(rank, entries, ranks, random_.randint(1, 12)))
    return dumps, kind, () if kind == "stuck" else (culprit,), number


def hangs(seeds: Iterable[int]) -> Iterator[str]:
    """Yield the seeds whose hang is not named right."""
    for seed in seeds:
        dumps, kind, ranks, number = hang(random.Random(seed))
        report = explain(dumps)
        if (report.kind, report.ranks, report.number) != (kind, ranks, number):
            yield f"{seed}: {kind} {ranks} {number}, and the report states {report.cause}"


def test_random_hangs_are_named_right_whatever_their_buffers_keep() -> None:
    assert list(hangs(range(60))) == []


@pytest.mark.seeds(deep=600, exhaustive=4000, at_a_time=300)
def test_many_random_hangs_are_named_right(seeds: range) -> None:
    assert list(hangs(seeds)) == []


def test_a_wait_that_follows_from_another_one_is_not_blamed() -> None:
    """Check that rank 1 waits in a small group for rank 0, which never came: rank 1's absence is a result."""
    before = [entry(1, 0, True)]
    dumps = [
        dump(0, before),
        dump(1, [*before, entry(1, 1, False, group="1")]),
        dump(2, [*before, entry(2, 1, False)]),
        dump(3, [*before, entry(2, 1, False)]),
    ]
    report = explain(dumps)
    assert (report.kind, report.ranks) == ("missing", (0,))
    assert len(report.waits) == 2


def test_a_message_without_its_receive_is_named() -> None:
    sent = Entry(
        1, 0, ("0", "default_pg"), 1, 1, profiling_name="nccl:send 0->1", is_p2p=True, state="started"
    )
    report = explain([dump(0, [entry(1, 0, True), sent], 2), dump(1, [entry(1, 0, True)], 2)])
    assert (report.kind, report.ranks, report.operation) == ("message", (1,), "send")


def test_dumps_of_a_job_that_ran_name_no_rank() -> None:
    report = explain([dump(rank, [entry(1, 0, True)], 2) for rank in range(2)])
    assert (report.kind, report.ranks) == ("none", ())


def test_the_last_number_that_a_rank_enqueued_counts_if_its_buffer_lost_the_entry() -> None:
    others = [dump(rank, [entry(1, 0, True), entry(2, 1, False)], 3) for rank in (0, 2)]
    behind = dump(1, [entry(1, 0, True)], 3)
    assert explain([*others, behind]).kind == "missing"
    ahead = msgspec.structs.replace(behind, status={"0": Status(2, 2, 1)})
    assert explain([*others, ahead]).kind == "stuck"


@pytest.mark.parametrize(
    ("names", "cause"),
    [(("rank_1.a", "rank_1.b"), "both of rank 1"), (("dump",), "has no number")],
)
def test_names_of_dumps_must_tell_the_ranks_apart(names: tuple[str, ...], cause: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes((DATA / "missing" / "trace_rank_0").read_bytes())
    with pytest.raises(InputError, match=cause):
        read_dumps(sorted(tmp_path.iterdir()))
