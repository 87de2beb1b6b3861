"""Time rises with size except at changes of a library's algorithm; there it falls at most as measured."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from et_sim.api import run
from et_sim.cli import main
from et_sim.machine.collective_library import Calibration, Call, Library, LibraryChoice, LibraryWires
from et_sim.machine.collective_library.choice import Logged
from et_sim.machine.collective_library.constants import LibraryProtocol
from et_sim.machine.collective_library.falls import MOST_FALL
from et_sim.machine.presets import names, preset
from et_sim.machine.readers import read_machine
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload

KIB, MIB = 1 << 10, 1 << 20
CURVED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
A100 = Library("nccl-2.30", "ampere", LibraryWires(240, True, 8, 25), 8)
ROUNDING = 1e-9
BETWEEN_LIMITED = 1.5  # times that a time between nodes may exceed its limit before a fall
Groups = Callable[[int], list[tuple[int, int]]]
# Falls between nodes, of logs that may be cited: bytes and us, before and after.
CITED = {
    "all_reduce": ((1048576, 414.8), (2097152, 318.6)),  # 16 MI300X, hisohara/ai-scripts 7b8b1ec290
    "all_gather": ((256, 86.95), (8192, 84.25)),  # 16 H100 of GCP A3 Mega
}


@cache
def library(name: str) -> Library | None:
    """Return the library of two nodes of a preset, or None if it has none."""
    if name == "v100-dgx-1":  # of one node, and without a library
        return None
    whole = preset(f"{name}:{2 * preset(name).npus}")
    return read_machine(system=whole.system, network=whole.network).system.library


WITH_LIBRARY = [name for name in names() if library(name) is not None]


def few_groups(node: int) -> list[tuple[int, int]]:
    """Return ranks and nodes: a node, one rank on each of two, and all of two and of sixteen."""
    return [(node, 1), (2, 2), (2 * node, 2), (16 * node, 16)]


def many_groups(node: int) -> list[tuple[int, int]]:
    """Return ranks and nodes: parts of a node and all of it, and one rank, two and all of several nodes."""
    within = {(ranks, 1) for ranks in (2, 3, 4, 8, 16, node) if ranks <= node}
    return sorted(within | {(each * nodes, nodes) for nodes in (2, 3, 4, 16, 64) for each in (1, 2, node)})


def switches(machine: Library, call: Call) -> Iterator[LibraryChoice]:
    """Yield the choices at powers of two, and on both sides of each change between them."""

    def of(size: int) -> Call:
        return Call(call.kind, call.ranks, call.nodes, size, call.datatype)

    def way(size: int) -> tuple[str, LibraryProtocol]:
        chosen = machine.way(of(size))
        return chosen.algorithm, chosen.protocol

    for power in range(10, 32):
        low, high = 1 << power, 2 << power
        yield machine.choice(of(low))
        before = way(low)
        if before != way(high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if way(middle) == before else (low, middle)
            yield machine.choice(of(low))
            yield machine.choice(of(high))


def largest_fall(times: list[float]) -> float:
    """Return the largest ratio of a time to a later one."""
    most, fall = 0.0, 1.0
    for time in times:
        most = max(most, time)
        fall = max(fall, most / time)
    return fall


def limit(kind: str, nodes: int) -> float:
    return MOST_FALL[kind][nodes > 1] * (1 + ROUNDING)


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("groups", [few_groups, pytest.param(many_groups, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", WITH_LIBRARY)
def test_no_fall_of_a_machine_by_name_is_larger_than_those_of_its_class(name: str, groups: Groups) -> None:
    machine = library(name)
    assert machine is not None
    for kind, datatype in (*((kind, "") for kind in CURVED), ("all_reduce", "int8")):
        for ranks, nodes in groups(machine.node):
            ways = list(switches(machine, Call(kind, ranks, nodes, 1, datatype)))
            assert largest_fall([way.time_us for way in ways]) <= limit(kind, nodes), (kind, ranks, nodes)
            limited = [way.unlimited_us / way.time_us for way in ways if way.unlimited_us]
            assert nodes == 1 or max(limited, default=1.0) <= BETWEEN_LIMITED, (kind, ranks, nodes)


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("groups", [few_groups, pytest.param(many_groups, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", WITH_LIBRARY)
def test_each_way_takes_longer_with_every_byte(name: str, groups: Groups) -> None:
    machine = library(name)
    assert machine is not None
    sizes = sorted({(1 << power) + more for power in range(5, 32) for more in (-1, 0, 1 << (power - 1))})
    for kind in ("all_reduce", "all_gather", "broadcast", "all_to_all"):
        for ranks, nodes in groups(machine.node):
            before: dict[str, float] = {}
            for size in sizes:
                for way in machine.choices(Call(kind, ranks, nodes, size)):
                    assert way.time_us >= before.get(way.name, 0.0) * (1 - ROUNDING), (kind, ranks, size)
                    before[way.name] = way.time_us


FACTORS = [name for name in Calibration.__struct_fields__ if not name.startswith("pairs")]


@settings(max_examples=40, deadline=None)
@given(
    st.fixed_dictionaries({name: st.floats(0.2, 5.0) for name in FACTORS}),
    st.floats(100.0, 3000.0),
    st.sampled_from(CURVED),
    st.sampled_from([(2, 1), (8, 1), (16, 2), (4, 4), (64, 8)]),
    st.booleans(),
)
def test_no_calibration_makes_a_larger_fall(
    factors: dict[str, float], copy: float, kind: str, group: tuple[int, int], is_logged: bool
) -> None:
    logged: tuple[Logged, ...] = ()
    if is_logged:
        logged = (
            Logged(kind, group[1], 64 * KIB, "ring", LibraryProtocol.SIMPLE),
            Logged(kind, group[1], MIB, "ring", LibraryProtocol.LL),
            Logged(kind, group[1], 8 * MIB, "ring", LibraryProtocol.LL128),
        )
    machine = replace(A100, calibration=Calibration(**{**factors, "copy": copy}), logged=logged)
    times = [way.time_us for way in switches(machine, Call(kind, *group, 1))]
    assert largest_fall(times) <= limit(kind, group[1])


def test_limits_are_no_larger_than_the_largest_measured_falls() -> None:
    tables = json.loads((files("et_sim.validation") / "measurements" / "collectives.json").read_text())
    measured: dict[str, float] = defaultdict(lambda: 1.0)
    for table in tables:
        if table["nodes"] == 1:
            kind = table["collective"]
            measured[kind] = max(measured[kind], largest_fall([us for _, us in sorted(table["rows"])]))
    assert {kind: round(fall, 2) for kind, fall in measured.items()} == {
        "all_reduce": 1.42,
        "all_gather": 1.21,
        "reduce_scatter": 1.23,
        "broadcast": 1.03,
        "alltoall": 1.67,
    }
    for kind, (on_a_node, between) in MOST_FALL.items():
        assert on_a_node <= (measured[kind] if kind in measured else measured["broadcast"])
        cited = CITED.get(kind)
        assert between <= (cited[0][1] / cited[1][1] if cited else 1.0)


def test_half_the_bytes_of_a_broadcast_do_not_take_twice_the_time() -> None:
    machine = library("a100-dgx-80gb")
    assert machine is not None
    times = [machine.choice(Call("broadcast", 64, 8, size * MIB)).time_us for size in (1, 2, 4, 8)]
    assert times == sorted(times)


def test_the_time_before_a_fall_is_the_limit_times_that_after_it() -> None:
    machine = replace(A100, calibration=Calibration(bandwidth_ll=0.5))
    choices = list(switches(machine, Call("all_reduce", 8, 1, 1)))
    before, after = next(
        pair
        for pair in pairwise(choices)
        if (pair[0].protocol, pair[1].protocol) == (LibraryProtocol.LL, LibraryProtocol.LL128)
    )
    assert before.larger is not None
    assert before.time_us == pytest.approx(MOST_FALL["all_reduce"][0] * after.time_us, rel=1e-6)
    assert before.unlimited_us > before.time_us
    assert (before.larger.time_us, after.larger) == (after.time_us, None)
    size = before.larger.size
    assert machine.choice(Call("all_reduce", 8, 1, size)).name == "ring LL128"
    assert machine.choice(Call("all_reduce", 8, 1, size - 1)).name == "ring LL"


def test_trees_agree_with_the_library_at_powers_of_two_and_run_evenly_between() -> None:
    def bandwidth(size: int) -> float:
        [way] = [way for way in A100.choices(Call("all_reduce", 16, 2, size)) if way.name == "tree LL"]
        first = A100.choices(Call("all_reduce", 16, 2, size))
        [estimate] = [each.estimate_us for each in first if each.name == "tree LL"]
        return way.time_us / estimate

    assert bandwidth(MIB) == pytest.approx(1.0)
    assert bandwidth(2 * MIB - 1) < bandwidth(3 * MIB // 2) < 1.0
    assert math.isclose(bandwidth(2 * MIB), 1.0)


def test_a_run_and_the_comparison_name_a_size_before_a_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = ["--machine", "h100-dgx:8"]
    main(["make", "all_gather", *machine, "--bytes", "512KiB", "-o", "gather"])
    capsys.readouterr()
    assert main(["run", "gather", *machine]) == 0
    out, err = capsys.readouterr()
    assert "collective library: more bytes are faster: all_gather" in err
    assert "more bytes are faster" in out
    warnings = json.loads((tmp_path / "gather.run" / "summary.json").read_text())["warnings"]
    [text] = [entry["text"] for entry in warnings if entry["place"] == "collective library"]
    assert text == (
        "more bytes are faster: all_gather of 512 KiB on 8 takes 37.4 us, limited from 37.7 us, "
        "and 565.18 KiB 31.2 us (ring LL128)"
    )
    command = ["collective", "library", *machine, "--type", "all_gather", "--bytes"]
    assert main([*command, "512KiB"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == text
    assert main([*command, "512KiB", "--json"]) == 0
    [size] = json.loads(capsys.readouterr().out)["sizes"]
    larger = size["more_bytes_are_faster"]
    assert larger["time_us"] < 0.99 * min(way["time_us"] for way in size["ways"] if way["chosen"])
    assert main([*command, str(larger["bytes"]), "--json"]) == 0
    [size] = json.loads(capsys.readouterr().out)["sizes"]
    assert size["more_bytes_are_faster"] is None


@pytest.mark.parametrize(("sizes", "end"), [((1,), "(ring LL128)"), ((1, 2, 3), "; 2 others likewise")])
def test_of_several_sizes_before_a_fall_one_is_named_with_the_number_of_others(
    sizes: tuple[int, ...], end: str, tmp_path: Path
) -> None:
    build = TraceBuilder()
    for number in sizes:
        build.collective("all_gather", 524_288 - 8 * number)
    write_run(run(Workload.of([build.build()] * 8), machine="h100-dgx:8"), tmp_path / "run")
    warnings = json.loads((tmp_path / "run" / "summary.json").read_text())["warnings"]
    [text] = [entry["text"] for entry in warnings if entry["place"] == "collective library"]
    assert text.endswith(end)
