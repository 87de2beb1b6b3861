"""A collective library makes the choice of its source, in the predicted time."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.cli import main
from et_sim.machine.collective_library import Calibration, Call, Library, LibraryProtocol, LibraryWires
from et_sim.machine.collective_library.candidates import LibraryGroup
from et_sim.machine.collective_library.choice import Logged
from et_sim.machine.collective_library_keys import LIBRARY_KEYS
from et_sim.machine.model import Machine
from et_sim.machine.presets import names, preset
from et_sim.machine.readers import read_machine
from et_sim.machine.scaling import figures
from et_sim.machine.system_file import LIBRARY_KEY
from et_sim.workloads.microbenchmarks import make_microbenchmark

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier")
MIB = 1 << 20
A100 = Library("nccl-2.30", "ampere", LibraryWires(240, True, 8, 25), 8)
H200 = Library("nccl-2.30", "hopper", LibraryWires(370.8, True, 8, 50), 8)
B200 = Library("nccl-2.30", "blackwell", LibraryWires(721.8, True, 8, 50), 8)


@pytest.mark.parametrize(
    ("library", "kind", "ranks", "size", "datatype", "way", "us"),
    [
        (A100, "all_reduce", 8, 1024, "int8", "ring LL", 15.0),
        (A100, "all_reduce", 8, MIB, "int8", "ring LL", 35.9),
        (A100, "all_reduce", 8, 16 * MIB, "int8", "ring LL128", 173.6),
        (A100, "all_reduce", 8, 512 * MIB, "int8", "ring Simple", 3970.7),
        (H200, "all_reduce", 8, 64 * MIB, "fp16", "nvls Simple", 271.7),
        (H200, "all_reduce", 8, 512 * MIB, "fp16", "nvls Simple", 1998.8),
        (H200, "all_gather", 8, 8 * MIB, "fp16", "ring LL128", 49.5),
        (H200, "all_gather", 2, 2 * MIB, "fp16", "ring LL", 14.6),
        (H200, "all_gather", 2, 4 * MIB, "fp16", "ring Simple", 17.6),
    ],
)
def test_choices_are_those_of_nccl(
    library: Library, kind: str, ranks: int, size: int, datatype: str, way: str, us: float
) -> None:
    choice = library.choice(Call(kind, ranks, 1, size, datatype))
    assert (choice.text.partition(",")[0], round(choice.estimate_us, 1)) == (way, us)


def random_calls(draw: Random) -> list[Call]:
    """Return collectives of a few groups, on one node and on several."""
    groups = [(ranks, draw.choice((1, 2, 4))) for ranks in (8, 8, 16, 32)]
    calls = [(draw.choice(KINDS), *draw.choice(groups), 1 << draw.randint(2, 32)) for _ in range(12)]
    return [Call(*call, draw.choice(("", "fp8"))) for call in calls]


@pytest.mark.parametrize("library", [A100, H200, B200])
def test_candidates_that_several_choices_share_are_those_of_each(library: Library) -> None:
    ways = library.ways()
    for call in random_calls(Random(7)):
        assert library.choice(call, ways) == library.choice(call), call


@pytest.mark.parametrize("library", [A100, H200, B200])
def test_choices_on_a_node_do_not_depend_on_its_cards(library: Library) -> None:
    others = [replace(library, wires=replace(library.wires, card=card)) for card in (0.0, 3.0, 100.0)]
    for call in random_calls(Random(8)):
        on_a_node = replace(call, nodes=1)
        assert {other.choice(on_a_node) for other in others} == {library.choice(on_a_node)}, call


@pytest.mark.parametrize(
    ("library", "within", "between"),
    [(A100, (12, 20), (8, 24)), (H200, (12, 30), (8, 45)), (B200, (16, 45), (8, 48))],
)
def test_channels_are_those_that_logs_show(
    library: Library, within: tuple[int, int], between: tuple[int, int]
) -> None:
    close, across = library.rings(LibraryGroup(8, 1)), library.rings(LibraryGroup(16, 2))
    assert ((close.count, close.within), (across.count, across.between)) == (within, between)


def test_switches_do_not_sum_bytes_and_forbidden_algorithms_are_not_taken() -> None:
    call = Call("all_reduce", 8, 1, 64 * MIB)
    assert H200.choice(call).algorithm == "nvls"
    assert H200.choice(structs.replace(call, datatype="int8")).algorithm == "ring"
    assert replace(H200, algorithms=("tree",)).choice(call).algorithm == "tree"
    assert replace(H200, protocols=(LibraryProtocol.LL,)).choice(call).protocol is LibraryProtocol.LL
    only_pat = replace(H200, algorithms=("pat",)).choice(call)  # which cannot do this: as without
    assert only_pat == H200.choice(call)


def test_logged_choices_override_constants_between_their_sizes() -> None:
    seen = tuple(
        Logged("all_reduce", 1, size, way, protocol)
        for size, way, protocol in ((1024, "tree", LibraryProtocol.LL), (MIB, "ring", LibraryProtocol.SIMPLE))
    )
    library = replace(H200, logged=seen)
    for size, way in ((1024, "tree LL"), (MIB - 1, "tree LL"), (MIB, "ring Simple")):
        call = Call("all_reduce", 8, 1, size)
        assert library.choice(call).text.startswith(way)
        assert library.way(call).algorithm == way.split()[0]
    for call in (
        Call("all_reduce", 8, 1, 1023),
        Call("all_reduce", 8, 1, MIB + 1),
        Call("all_reduce", 16, 2, 2048),
    ):
        assert library.choice(call) == H200.choice(call)
    assert library.choice(Call("all_to_all", 8, 1, 2048)) == H200.choice(Call("all_to_all", 8, 1, 2048))


def _library(machine: Machine) -> Library:
    library = machine.system.library
    assert library is not None
    return library


def _library_ns(name: str, kind: str, ranks: int, size: int) -> float:
    known = preset(f"{name}:{ranks}")
    library = _library(read_machine(system=known.system, network=known.network))
    nodes = -(-ranks // library.node)
    counted = size * ranks if kind == "all_gather" else size
    return library.choice(Call(kind, ranks, nodes, counted)).time_us * 1000


@settings(max_examples=settings.default.max_examples // 2)
@given(
    name=st.sampled_from(["a100-dgx-80gb", "h100-dgx", "b200-dgx", "mi300x-node"]),
    kind=st.sampled_from(KINDS),
    ranks=st.sampled_from([2, 3, 4, 7, 8, 16, 24, 64]),
    size=st.integers(1, 1 << 28),
    model=st.sampled_from(["analytical", "flow"]),
)
def test_a_lone_collective_takes_the_time_of_the_library(
    name: str, kind: str, ranks: int, size: int, model: str
) -> None:
    assert abs(_alone_ns(name, kind, ranks, size, model) - _library_ns(name, kind, ranks, size)) <= 2


def _alone_ns(name: str, kind: str, ranks: int, size: int, model: str) -> int:
    workload = make_microbenchmark(kind, ranks=ranks, size=0 if kind == "barrier" else size)
    known = preset(f"{name}:{ranks}")
    return et_sim.simulate(workload, system=known.system, network=known.network, model=model).makespan_ns


WITH_SHARED_CARDS = (
    *("a100-pcie-node", "h100-nvl-node", "h100-pcie-node", "l40s-node", "rtx-pro-6000-node"),
    "v100-pcie-node",
)


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("name", sorted(name for name in names() if "library" in preset(name).system))
def test_a_lone_collective_takes_the_time_of_the_library_on_every_machine(name: str) -> None:
    known = preset(name)
    node = _library(read_machine(system=known.system, network=known.network)).node
    for ranks in (node, 2 * node):
        for kind in ("all_reduce", "all_gather", "all_to_all"):
            for size in (1000, MIB, 1 << 28):
                output = _library_ns(name, kind, ranks, size)
                share = 0.06 if name in WITH_SHARED_CARDS and ranks > node else 0.0
                result = _alone_ns(name, kind, ranks, size, "flow")
                assert abs(result - output) <= max(2, share * output), (kind, ranks, size)


def _in_group_ns(name: str, members: list[int], kind: str, size: int) -> int:
    known = preset(name)
    ranks, traces = known.network["npus_count"][0] * known.network["npus_count"][1], []
    for rank in range(ranks):
        build = et_sim.TraceBuilder()
        if rank in members:
            build.collective(kind, size, group="1")
        else:
            build.compute("other", micros=1)
        traces.append(build.build())
    workload = et_sim.Workload(tuple(traces), np.arange(ranks, dtype=np.int32))
    result = et_sim.simulate(
        workload, system=known.system, network=known.network, groups={"1": members}, model="flow"
    )
    return result.makespan_ns


@settings(max_examples=settings.default.max_examples // 3)
@given(
    members=st.lists(st.integers(0, 23), min_size=2, unique=True).map(sorted),
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]),
    size=st.sampled_from([1000, MIB, 1 << 28]),
)
def test_groups_anywhere_take_about_the_time_of_the_library(members: list[int], kind: str, size: int) -> None:
    known = preset("h100-dgx:24")
    on = [count for node in range(3) if (count := sum(rank // 8 == node for rank in members))]
    counted = size * len(members) if kind == "all_gather" else size
    library = _library(read_machine(system=known.system, network=known.network))
    output = library.choice(Call(kind, len(members), len(on), counted, least=min(on))).time_us * 1000
    assert 0.87 <= _in_group_ns("h100-dgx:24", members, kind, size) / output <= 1.13


@pytest.mark.deep
def test_one_rank_more_on_one_of_two_nodes_is_no_gain() -> None:
    times = [
        _in_group_ns("h100-dgx:16", members, "all_reduce", 1 << 30)
        for members in ([0, 8], [0, 1, 8], [0, 1, 2, 9])
    ]
    assert times == sorted(times)


def test_all_to_alls_between_nodes_begin_with_a_launch_and_a_step_of_the_network() -> None:
    here, away = (_library_ns("h100-dgx", "all_to_all", ranks, 1024) for ranks in (8, 16))
    assert away >= here + 2700


def test_more_nodes_are_no_gain_for_bytes_that_switches_sum() -> None:
    output = [_library_ns("gb200-nvl72", "all_reduce", ranks, 1 << 30) for ranks in (72, 144, 288)]
    assert output == sorted(output)


def test_trees_over_switches_shrink_by_size_but_with_grace() -> None:
    call = Call("all_reduce", 16, 2, 4 * MIB)
    only = replace(B200, algorithms=("nvls-tree",))
    slower, other = (replace(only, cpu=cpu).way(call).bandwidth for cpu in ("intel", "arm"))
    assert slower == pytest.approx(0.7 * other)


def _faster_cards(network: dict[str, Any]) -> dict[str, Any]:
    if "graph" in network:
        return {"graph": network["graph"] | {"bandwidth": "100GB/s"}}
    return network | {"bandwidth": [network["bandwidth"][0], "100GB/s"]}


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("h100-dgx:16", "bandwidth of dimension 1"),
        ("l40s-node:16", "bandwidth of nic to rail0-leaf, rail1-leaf, rail2-leaf"),
    ],
)
def test_a_machine_whose_links_are_multiplied_is_the_machine_with_such_links(name: str, figure: str) -> None:
    known = preset(name)
    machine = read_machine(system=known.system, network=known.network)
    changed = read_machine(system=known.system, network=_faster_cards(dict(known.network)))
    rate = machine.network.wiring[1].bytes_per_ns
    scaled = figures(machine)[figure](100 / rate)
    assert scaled is not None
    assert _library(scaled[0]).wires == _library(changed).wires != _library(machine).wires
    assert scaled[0].network.wiring == changed.network.wiring


def test_wires_that_the_library_has_no_channels_for_are_mentioned() -> None:
    known = preset("h100-dgx:16")
    for bandwidth, why in (
        (["3600GB/s", "50GB/s"], "has at most 64 channels of 30 GB/s on a node"),
        (["450GB/s", "100GB/s"], "counts 48 GB/s of a card of 100"),
    ):
        machine = read_machine(system=known.system, network=known.network | {"bandwidth": bandwidth})
        assert any(why in warning.text for warning in machine.warnings)
    assert not read_machine(system=known.system, network=known.network).warnings


@st.composite
def _jobs(draw: st.DrawFn) -> tuple[int, dict[str, list[int]], list[tuple[str, str, int]]]:
    """Draw ranks of up to three nodes, groups anywhere on them, and collectives of these."""
    ranks = 8 * draw(st.integers(1, 3))
    members = st.lists(st.integers(0, ranks - 1), min_size=2, max_size=ranks, unique=True).map(sorted)
    groups = {str(number + 1): draw(members) for number in range(draw(st.integers(1, 3)))}
    sizes = st.sampled_from([100, 1 << 13, MIB, 12 * MIB])
    call = st.tuples(st.sampled_from(KINDS), st.sampled_from(["", *groups]), sizes)
    return ranks, groups, draw(st.lists(call, min_size=1, max_size=4))


@pytest.mark.deep
@settings(max_examples=settings.default.max_examples // 3)
@given(
    job=_jobs(),
    name=st.sampled_from(["h100-dgx", "mi300x-node"]),
    model=st.sampled_from(["analytical", "flow"]),
    late=st.integers(-1, 23),
)
def test_groups_anywhere_fold_without_a_difference(
    job: tuple[int, dict[str, list[int]], list[tuple[str, str, int]]], name: str, model: str, late: int
) -> None:
    ranks, groups, collectives = job
    traces = []
    for rank in range(ranks):
        build, last = et_sim.TraceBuilder(), list[int]()
        for kind, group, size in collectives:
            if not group or rank in groups[group]:
                last = [build.collective(kind, size, group=group, after=last)]
        if not last:
            build.compute("nothing", micros=1)
        traces.append(build.build())
    known = preset(f"{name}:{ranks}")
    system: dict[str, Any] = dict(known.system)
    if 0 <= late < ranks:
        system["stragglers"] = [{"ranks": str(late), "delay": "13us"}]
    workload = et_sim.Workload(tuple(traces), np.arange(ranks, dtype=np.int32))
    runs = [
        et_sim.simulate(workload, system=system, network=known.network, groups=groups, model=model, fold=fold)
        for fold in (True, False)
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()


@pytest.mark.parametrize("ranks", [8, 16])
@pytest.mark.parametrize("model", ["analytical", "flow"])
def test_a_late_rank_delays_all_by_its_lateness(model: str, ranks: int) -> None:
    known = preset(f"h100-dgx:{ranks}")
    late = {**known.system, "stragglers": [{"ranks": "3", "delay": "100us"}]}
    workload = make_microbenchmark("all_reduce", ranks=ranks, size=64 * MIB)
    times = [
        et_sim.simulate(workload, system=system, network=known.network, model=model).makespan_ns
        for system in (known.system, late)
    ]
    assert times[1] - times[0] == 100_000


def test_two_at_once_share_the_links() -> None:
    known = preset("h100-dgx:8")
    build = et_sim.TraceBuilder()
    for _ in range(2):
        build.collective("all_gather", 64 * MIB)
    workload = et_sim.Workload((build.build(),), np.zeros(8, np.int32))
    both = et_sim.simulate(workload, system=known.system, network=known.network, model="flow").makespan_ns
    alone = _library_ns("h100-dgx", "all_gather", 8, 64 * MIB)
    wire = 7 * 64 * MIB / 450
    assert max(alone, 2 * wire) <= both <= 2 * alone
    assert both > 1.2 * alone


MACHINES = [name for name in names() if "library" in preset(name).system]


@pytest.mark.parametrize("name", MACHINES)
def test_no_choice_beats_the_wires(name: str) -> None:
    for ranks in (2, 4, 8, 16, 64):
        if preset(name).network["npus_count"][0] not in (8, ranks):
            continue
        known = preset(f"{name}:{ranks}")
        machine = read_machine(system=known.system, network=known.network)
        library = _library(machine)
        nodes = -(-ranks // library.node)
        for kind in KINDS[:4]:
            for size in (MIB, 64 * MIB, 1 << 30):
                counted = size * ranks if kind == "all_gather" else size
                ppn = ranks // nodes
                links = library.wires.line_rate * (ppn - 1 if library.wires.is_mesh else 1)
                wire = counted * (ppn - 1) / ppn / links if nodes == 1 else 0.0
                if nodes > 1:
                    wire = counted * (nodes - 1) / nodes / (library.wires.card * library.wires.cards / ppn)
                    wire /= 1 if kind == "all_to_all" else ppn
                choice = library.choice(Call(kind, ranks, nodes, counted))
                assert choice.time_us * 1000 >= wire, (kind, ranks, size)


def test_a_named_algorithm_overrides_the_library() -> None:
    known = preset("h100-dgx:8")
    workload = make_microbenchmark("all_reduce", ranks=8, size=MIB)

    def run(**keys: Any) -> int:
        return et_sim.simulate(workload, system=known.system | keys, network=known.network).makespan_ns

    rings = {"all-reduce-implementation": ["ring"]}
    assert run(**rings) == run(library="none", **rings) != run()
    forced = run(library={**known.system["library"], "algorithms": ["ring"], "protocols": ["Simple"]})
    assert forced > run()


def test_networks_without_support_of_a_library_run_rings_with_a_warning() -> None:
    known = preset("h100-dgx:16")
    torus = {"topology": ["Ring"], "npus_count": [16], "bandwidth": ["50GB/s"], "latency": ["500ns"]}
    machine = read_machine(system=known.system, network=torus)
    assert machine.system.library is None
    assert machine.system.implementations.all_reduce == ("ring",)
    assert any(
        "not used: a library is known on networks whose" in warning.text for warning in machine.warnings
    )
    apart = known.system | {"corrections": {"groups-by-dimension": False}}
    as_listed = read_machine(system=apart, network=known.network)
    assert any("groups-by-dimension is off" in warning.text for warning in as_listed.warnings)
    reference = read_machine(system=known.system, network=known.network, profile="reference")
    assert any("not known in profile 'reference'" in warning.text for warning in reference.warnings)


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("nccl", 'key "name" is "nccl"'),
        ({"name": "nccl-2.30", "gpu": "cdna3"}, "nccl-2.30 does not support \"gpu\" 'cdna3'"),
        ({"name": "rccl-2.21"}, 'key "gpu" is missing, and 450 GB/s is the NVLink of no generation'),
        ({"name": "nccl-2.30", "rings": {"on-a-node": [12]}}, '"rings": "on-a-node" is [12]'),
        ({"name": "nccl-2.30", "calibration": {"bandwidth-ll": 0}}, '"bandwidth-ll" is 0'),
        ({"name": "nccl-2.30", "calibration": {"bandwith": 1}}, 'key "bandwith" is not known'),
        ({"name": "nccl-2.30", "choices": {"all_to_all": []}}, "\"choices\": 'all_to_all' is not known"),
        ({"name": "nccl-2.30", "choices": {"reduce": [[1, 2, "ring"]]}}, '"reduce" holds'),
    ],
)
def test_an_invalid_library_is_refused(library: Any, why: str) -> None:
    known = preset("h100-dgx:8")
    with pytest.raises(MachineError) as raised:
        read_machine(system=known.system | {"library": library}, network=known.network)
    assert why in str(raised.value)


def test_a_name_alone_takes_the_generation_from_the_links() -> None:
    known = preset("h100-dgx:16")
    machine = read_machine(system=known.system | {"library": "nccl-2.30"}, network=known.network)
    assert (_library(machine).gpu, _library(machine).calibration) == ("hopper", Calibration())
    assert any("hopper is taken" in default.text for default in machine.defaults)


def test_the_timeline_has_the_choice_of_the_library(tmp_path: Path) -> None:
    workload = make_microbenchmark("all_reduce", ranks=8, size=64 * MIB)
    known = preset("h100-dgx:8")
    result = et_sim.simulate(workload, system=known.system, network=known.network, detail="path")
    assert result.timeline["timed_by"].to_pylist() == ["nvls Simple, 8 channels"]
    result.save(tmp_path / "run")
    with pa.ipc.open_file(tmp_path / "run" / "path.arrow") as events:
        kinds = events.read_all()["kind"].to_pylist()
    assert "library" in kinds
    assert "reduction" not in kinds


def test_all_choices_are_compared_as_text_json_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["collective", "library", "--machine", "h100-dgx:16"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("nccl-2.30, all_reduce of 16 ranks on 2 nodes")
    assert all(line.count("*") == 1 for line in lines[2:13])
    assert main([*command, "--bytes", "64MiB", "--dtype", "int8", "--json"]) == 0
    ways = json.loads(capsys.readouterr().out)["sizes"][0]["ways"]
    assert [way["chosen"] for way in ways].count(True) == 1
    assert not any("nvls" in way["way"] for way in ways)
    assert main([*command, "--svg", str(tmp_path / "choices.svg")]) == 0
    assert "nvls-tree Simple" in (tmp_path / "choices.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["library"], "a library is part of a machine"),
        (["library", "--machine", "tpu-v4-pod:64"], "tpu-v4-pod names no collective library"),
        (["library", "--machine", "h100-dgx:1"], "has one NPU"),
        (["library", "--machine", "h100-dgx", "--type", "gather"], "a library does not choose for gather"),
        (["ring", "--ranks", "8", "--dtype", "int8"], "--dtype does not belong to ring"),
    ],
)
def test_incomparable_arguments_are_refused(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collective", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_the_key_of_the_system_file_names_every_key_of_a_library() -> None:
    assert LIBRARY_KEY.choices == tuple(key.name for key in LIBRARY_KEYS)
