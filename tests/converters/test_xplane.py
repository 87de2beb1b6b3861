"""XPlane profiles become traces with the recorded times, and collectives with the groups of the HLO."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xplane_files import (
    FLOAT,
    HLO,
    ON_GPU,
    groups,
    instruction,
    kernel_times,
    module,
    profile,
    shape,
    small_profile,
)

from converters.cli import main
from converters.recordings.xplane.collectives import read_program
from et_sim.basics.group_names import group_key
from et_sim.basics.protobuf_fields import message, number, text
from et_sim.trace import Trace, read_trace
from et_sim.trace.columns import NodeKind, collective_name
from et_sim.trace.group_attributes import read_process_groups

DATA = Path(__file__).parent / "data" / "xplane"


def converted(path: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Convert a profile and return the reports of its ranks."""
    assert main(["recording", str(path), "-o", str(output), "--json"]) == 0
    reports: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["ranks"]
    return reports


def times_of_streams(trace: Trace) -> dict[int, int]:
    """Return the nanoseconds of the kernels of each stream."""
    chosen = ~trace.is_cpu & ~trace.is_gap & (trace.thread == 0)
    streams = trace.stream[chosen]
    return {int(s): int(trace.duration_ns[chosen][streams == s].sum()) for s in np.unique(streams)}


@pytest.mark.parametrize("name", ["tw003", "934987a2fc2f"])
def test_real_profiles_keep_their_span_and_the_time_of_each_stream(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = DATA / f"{name}.xplane.pb.gz"
    expected = kernel_times(gzip.decompress(path.read_bytes()))
    reports = converted(path, tmp_path / "job", capsys)
    assert len(reports) == len(expected)
    for rank, (report, device) in enumerate(zip(reports, sorted(expected), strict=True)):
        assert report["time"]["replayed_ns"] == report["time"]["measured_ns"] > 0
        found = times_of_streams(read_trace(tmp_path / f"job.{rank}.et"))
        assert {stream: 1000 * ns for stream, ns in found.items()} == expected[device]


TWO_BY_TWO = [[0, 1], [2, 3]]  # two replicas of two partitions


def collectives_of(trace: Trace) -> dict[str, tuple[int, tuple[int, ...], int]]:
    """Return bytes, members of the group, and nanoseconds of each kind of collective."""
    groups = read_process_groups(trace) | {"": ()}
    found = {}
    for row in np.flatnonzero(trace.kind == NodeKind.COLL).tolist():
        members = groups[group_key(trace.group_names[trace.group[row]])] if trace.group[row] else ()
        kind = collective_name(int(trace.comm_type[row]))
        found[kind] = (int(trace.comm_bytes[row]), members, int(trace.duration_ns[row]))
    return found


def test_collectives_have_the_sizes_and_groups_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.pb"
    path.write_bytes(small_profile())
    reports = converted(path, tmp_path / "job", capsys)
    assert [report["time"]["replayed_ns"] for report in reports] == [230] * 4
    for rank in range(4):
        found = collectives_of(read_trace(tmp_path / f"job.{rank}.et"))
        assert found == {
            "all_reduce": (1024, (0, 1) if rank < 2 else (2, 3), 50),
            "all_gather": (2 * 8 * 2, (0, 2) if rank % 2 == 0 else (1, 3), 20),
            "reduce_scatter": (1024, (), 30),
        }


@pytest.mark.parametrize(
    ("opcode", "more", "assigned", "expected"),
    [
        # numbers of replicas, in each partition
        ("all-reduce", (groups((0, 1)),), TWO_BY_TWO, {(0, 1), (2, 3)}),
        # numbers of partitions, of each replica
        ("all-to-all", (groups((0, 1)), number(26, 1)), TWO_BY_TWO, {(0, 2), (1, 3)}),
        # numbers of replicas, with all of their partitions
        ("all-reduce", (groups((0,), (1,)), number(26, 1)), TWO_BY_TWO, {(0, 2), (1, 3)}),
        # devices: replica times partitions plus partition
        ("all-reduce", (groups((0, 3), (1, 2)), number(26, 1), number(71, 1)), TWO_BY_TWO, {(0, 3), (2, 1)}),
        ("all-reduce", (number(26, 1),), [[0], [1]], set()),
        ("all-reduce", (groups((0, 9)),), [[0, 1]], set()),
    ],
)  # fmt: skip
def test_groups_count_what_channel_and_flag_decide(
    opcode: str, more: tuple[bytes, ...], assigned: list[list[int]], expected: set[tuple[int, ...]]
) -> None:
    body = [
        instruction("x", "parameter", shape(FLOAT, 8), 1),
        instruction("c", opcode, shape(FLOAT, 8), 2, (1,), *more),
    ]
    program = read_program(module([body], assigned))
    assert program is not None
    assert set(program.collectives["c"].groups) == expected


def test_groups_of_a_real_program_are_those_of_its_mesh() -> None:
    """Read a product on a mesh of 2 x 2, as JAX 0.10.2 compiles it: groups are axes, or numbers in order."""
    program = read_program((DATA / "sharded_product.hlo.pb").read_bytes())
    assert program is not None
    rows, columns = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    assert {name: found.groups for name, found in program.collectives.items()} == {
        "all-gather": rows,
        "all-gather.1": columns,
        "all-reduce": rows,
        "all-reduce.1": columns,
    }
    gathered = program.collectives["all-gather"]  # a 32 x 32 of four bytes, and 32 x 64
    assert (gathered.in_bytes, gathered.out_bytes) == (4096, 8192)


def test_damaged_programs_are_read_or_not() -> None:
    sound = (DATA / "sharded_product.hlo.pb").read_bytes()
    mesh = sound.index(b"axis_0")
    for seed in range(300):
        chance, damaged = random.Random(seed), bytearray(sound)
        damaged[chance.randrange(mesh - 8, mesh + 40)] = chance.randrange(256)
        program = read_program(bytes(damaged))
        found = program.collectives.values() if program is not None else ()
        assert all(0 <= device < 4 for one in found for group in one.groups for device in group)


def axes(sizes: Sequence[int], chosen: Sequence[tuple[int, int, int]], *order: bytes) -> bytes:
    """Return groups along (axis, before, size) of a mesh; without a size, along the whole axis."""
    named = (message(1, text(1, f"a{at}"), number(2, size)) for at, size in enumerate(sizes))
    parts = (
        message(2, number(1, axis), *((message(2, number(1, before), number(2, size)),) if size else ()))
        for axis, before, size in chosen
    )
    return message(93, message(1, *named, *order), *parts)


LISTED = [5, 4, 3, 2, 1, 0]
TRANSPOSED = message(3, number(1, 3), number(1, 2), number(2, 1), number(2, 0))


@pytest.mark.parametrize(
    ("given", "devices", "expected"),
    [
        (axes([2, 3], [(1, 0, 0)]), 6, {(0, 1, 2), (3, 4, 5)}),
        (axes([2, 3], [(0, 0, 0)]), 6, {(0, 3), (1, 4), (2, 5)}),
        (axes([2, 3], [(1, 0, 0), (0, 0, 0)]), 6, {(0, 3, 1, 4, 2, 5)}),
        (axes([2, 3], [(0, 0, 0)], *(number(2, one) for one in LISTED)), 6, {(5, 2), (4, 1), (3, 0)}),
        # 3 x 2 numbers, transposed
        (axes([2, 3], [(1, 0, 0)], TRANSPOSED), 6, {(0, 2, 4), (1, 3, 5)}),
        # the middle part of an axis of 8: 2 x 2 x 2
        (axes([8], [(0, 2, 2)]), 8, {(0, 2), (1, 3), (4, 6), (5, 7)}),
        (axes([8], [(0, 1, 4)]), 8, {(0, 2, 4, 6), (1, 3, 5, 7)}),
        # what does not fit is not known
        (axes([8], [(0, 3, 2)]), 8, set()),
        (axes([8], [(1, 0, 0)]), 8, set()),
        (axes([0, 3], [(1, 0, 0)]), 8, set()),
        (axes([], [(0, 0, 0)]), 8, set()),
        (axes([1] * 40, [(0, 0, 0)]), 1, set()),
        (axes([2, 3], [(0, 0, 0)], *(number(2, one) for one in LISTED[1:])), 6, set()),
        (axes([2, 3], [(0, 0, 0)], *(number(2, one) for one in (*LISTED[:5], -1))), 6, set()),
    ],
)  # fmt: skip
def test_groups_along_axes_of_a_mesh_differ_in_these(
    given: bytes, devices: int, expected: set[tuple[int, ...]]
) -> None:
    body = [
        instruction("x", "parameter", shape(FLOAT, 8), 1),
        instruction("c", "all-reduce", shape(FLOAT, 8), 2, (1,), given, number(26, 1), number(71, 1)),
    ]
    program = read_program(module([body], [[device] for device in range(devices)]))
    assert program is not None
    assert set(program.collectives["c"].groups) == expected


def test_operations_of_a_tpu_that_hold_others_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {
        "XLA Modules": [("step", 0, 500)],
        "XLA Ops": [
            ("while", 0, 300), ("x", 10, 50), ("ar.1", 100, 150), ("ag-start.2", 260, 1), ("y", 400, 100)
        ],
        "Async XLA Ops": [("ag-start.2", 260, 140)],
    }  # fmt: skip
    path = tmp_path / "tpu"
    path.write_bytes(profile({"/device:TPU:0": lines}, HLO))
    (report,) = converted(path, tmp_path / "job", capsys)
    assert report["time"]["replayed_ns"] == report["time"]["measured_ns"] == 490
    trace = read_trace(tmp_path / "job.0.et")
    assert times_of_streams(trace) == {2: 50 + 150 + 1 + 100, 3: 140}
    found = collectives_of(trace)
    assert (found["all_gather"][2], found["all_reduce"][2]) == (140, 150)


def test_a_profile_of_the_host_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(profile({"/host:CPU": {"python": [("x", 0, 1)]}}, HLO))
    assert main(["recording", str(path), "-o", "never"]) == 2
    assert "no device has events; planes: /host:metadata, /host:CPU" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:-3])
    assert main(["recording", str(path), "-o", "never"]) == 2
    assert "cannot be read as XPlane" in capsys.readouterr().err


def test_what_the_programs_leave_unknown_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.pb"
    path.write_bytes(profile({"/device:GPU:1": ON_GPU}, HLO))
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 0
    assert "the programs are for 4 devices; recorded: 1" in capsys.readouterr().out
    path.write_bytes(profile({"/device:GPU:1": ON_GPU}, b""))
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 0
    assert "collectives have no groups and no sizes" in capsys.readouterr().out
