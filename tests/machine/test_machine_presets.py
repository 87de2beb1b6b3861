"""Presets: every machine reads, expands to equivalent files, and has a source for every figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import algorithms, ring, sent

import et_sim
from et_sim.basics.errors import EtSimError
from et_sim.basics.uncertainty import ASSUMED, CALIBRATED, ErrorTerm
from et_sim.basics.units import parse_bandwidth
from et_sim.calibrate.machine_file import accuracy_entry
from et_sim.cli import main
from et_sim.machine import read_machine
from et_sim.machine.accuracy import (
    BETWEEN_NODES,
    COMMUNICATION,
    DEFAULTS,
    LARGE_BYTES,
    OPERATIONS,
    SMALL_BETWEEN_NODES,
    SMALL_LIBRARY,
    Accuracy,
    of_kind,
)
from et_sim.machine.presets import as_one_file, entry, names, preset, widths_between
from et_sim.trace import shapes


def training(ranks: int) -> et_sim.Workload:
    build = et_sim.TraceBuilder()
    kernel = build.compute("fc", layer_shape=shapes.gemm(4096, 4096, 4096), dtype="bf16")
    build.collective("all_reduce", 1 << 25, after=[kernel])
    return et_sim.Workload.of([build.build()] * ranks)


@pytest.mark.parametrize("name", names())
def test_a_machine_reads_without_remarks_and_has_sources_of_its_figures(name: str) -> None:
    known = entry(name)
    for npus in {known.fewest, min(2 * known.fewest, known.most)}:
        result = preset(f"{name}:{npus}")
        machine = read_machine(system=result.system, network=result.network)
        assert machine.network.ranks == npus
        assert [warning.key for warning in machine.warnings] == []
        [rule] = (
            result.system["compute"]
            if isinstance(result.system["compute"], list)
            else [result.system["compute"]]
        )
        output = {**known.sources, **known.estimates}
        assert {"peaks", "efficiency", "memory-efficiency", "launch-overhead"} <= set(output)
        for level in rule["memory"]:
            assert any(what.startswith(level["name"]) for what in output), level
        for figure in ("processors", "tiles"):
            assert (figure in rule) == (figure in output)
        assert all(output.values())
    assert all(text.startswith("Estimate: ") for text in known.estimates.values())
    assert not any(text.startswith("Estimate") for text in known.sources.values())


@pytest.mark.deep
def test_the_files_of_a_machine_take_as_long_as_its_name(tmp_path: Path) -> None:
    assert main(["machine", "h100-dgx:16", "--out", str(tmp_path / "files")]) == 0
    by_name = et_sim.simulate(training(16), machine="h100-dgx:16")
    files = {
        part: str(tmp_path / "files" / name)
        for part, name in (("system", "system.json"), ("network", "network.yml"))
    }
    by_files = et_sim.simulate(training(16), **files, model="flow")
    assert by_name.finish_ns.tolist() == by_files.finish_ns.tolist()
    slower = ring(16, "1GB/s", "1us")
    system = {**preset("h100-dgx:16").system, **algorithms("ring")}
    mixed = et_sim.simulate(training(16), network=slower, system=system, model="flow")
    assert mixed.makespan_ns > by_name.makespan_ns


def test_all_npus_of_a_machine_fold_to_one() -> None:
    build = et_sim.TraceBuilder()
    build.compute("fc", layer_shape=shapes.gemm(4096, 4096, 4096))
    build.collective("all_reduce", 1 << 20)
    workload = et_sim.Workload((build.build(),), np.zeros(128, np.int32))
    result = et_sim.simulate(workload, machine="h100-dgx:128")
    assert result.summary()["folded"] == {"actors": 1, "ranks": 128}
    assert preset("h100-dgx:1048576").network["npus_count"] == [8, 131072]


@pytest.mark.parametrize("name", names())
def test_every_machine_runs_a_kernel_and_a_collective(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    npus = preset(name).npus
    build = et_sim.TraceBuilder()
    first = build.compute("product", layer_shape=shapes.gemm(1024, 1024, 1024))
    build.collective("all_gather", 1 << 16, after=[first])
    workload = et_sim.Workload((build.build(),), np.zeros(npus, np.int32))
    assert et_sim.simulate(workload, machine=name).makespan_ns > 0
    assert main(["machine", name]) == 0


def test_a_torus_is_as_even_as_its_cubes_allow() -> None:
    sides = [preset(f"tpu-v4-pod:{npus}").network["npus_count"] for npus in (64, 128, 512, 4096)]
    assert sides == [[4, 4, 4], [4, 4, 8], [8, 8, 8], [16, 16, 16]]
    sides = [preset(f"tpu-v5e-pod:{npus}").network["npus_count"] for npus in (4, 8, 32, 256)]
    assert sides == [[2, 2], [2, 4], [4, 8], [16, 16]]


def test_a_machine_like_another_has_its_own_figures_and_no_measured_accuracy() -> None:
    h100, h800 = preset("h100-dgx:16"), preset("h800-node:16")
    assert h800.network["bandwidth"] == ["200GB/s", "400Gbps"]
    assert h800.system["library"] == h100.system["library"]  # whose rates are parts of those of the links
    peaks, others = (of.system["compute"]["peaks"] for of in (h800, h100))
    assert {name for name in peaks if peaks[name] != others[name]} == {"fp64"}
    assert not set(h800.system["accuracy"]) & {*OPERATIONS}
    assert "price-per-hour" not in h800.system["costs"]
    known = entry("h800-node")
    assert known.estimates["like"].startswith("Estimate: ")
    assert "H800" in known.sources["peaks"]


OF_NODES = [
    name
    for name in names()
    if preset(name).network.get("topology", ["Ring"])[0] in ("Switch", "FullyConnected")
]


@pytest.mark.parametrize("name", OF_NODES)
def test_any_number_of_npus_of_one_node_is_a_machine_that_is_no_faster_than_its_ports(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    node, size = preset(name).npus, 64 << 20
    if not isinstance(as_one_file(name).get("node", node), int):
        pytest.skip("its nodes are dies of packages, whole ones only")
    library = preset(name).system.get("library", {})
    reduces_in_switches = library.get("gpu") in ("hopper", "blackwell") and "link" not in library
    for npus in {1, 2, 3, min(5, node), node - 1, node}:
        build = et_sim.TraceBuilder()
        build.collective("all_reduce", size)
        workload = et_sim.Workload((build.build(),), np.zeros(npus, np.int32))
        span = et_sim.simulate(workload, machine=f"{name}:{npus}", model="flow").makespan_ns
        network = preset(f"{name}:{npus}").network
        links = 1 if network["topology"] == ["Switch"] else npus - 1
        crossings = 2 * (npus - 1) / npus
        if reduces_in_switches:  # a port carries its own bytes once, and the sum once in the other direction
            crossings = min(crossings, 1)
        least = crossings * size / parse_bandwidth(network["bandwidth"][0])
        assert links * span >= least
        assert (span == 0) == (npus == 1)  # without other ranks


def test_half_of_a_cube_mesh_reduces_around_four_rings() -> None:
    size = 64 << 20
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", size)
    workload = et_sim.Workload((build.build(),), np.zeros(4, np.int32))
    span = et_sim.simulate(workload, machine="v100-dgx-1:4").makespan_ns
    least = 2 * 3 * (size / 4 / 4 / 22 + 3400)  # steps of a quarter of the bytes of a ring of 22 GB/s
    assert least <= span <= 1.05 * least
    assert preset("v100-dgx-1:4").node == 4
    assert "npu1 to npu2, 44GB/s, 3.4us" in preset("v100-dgx-1:4").wiring


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("h100-dxg:8", "machine 'h100-dxg' is not known (did you mean 'h100-dgx'?"),
        ("h100-dgx:12", "h100-dgx has nodes of 8 NPUs, and 12 NPUs are not a multiple (name 8 or 16; or use"),
        ("gb200-nvl72:0", "gb200-nvl72:0 has no NPU (name 1 to 72, or more)"),
        (
            "gb200-nvl72:256,cards=36",
            "a multiple; racks are full where GPUs share cards (name 216 or 288; or",
        ),
        ("h100-dgx:13", "h100-dgx has nodes of 8 NPUs, and 13 NPUs are not a multiple (name 8 or 16)"),
        ("h100-dgx:x", "does not end in a number of NPUs"),
        ("h100-dgx:0", "h100-dgx:0 has no NPU (name 1 to 8, or whole nodes)"),
        ("tpu-v4-pod:100", "is built of cubes of 64 NPUs, and 100 NPUs are not a multiple (name 64 or 128)"),
        ("tpu-v4-pod:8192", "has at most 4,096 NPUs, not 8,192"),
        ("tpu-v5e-pod:6", "is built of squares of 4 NPUs, and 6 NPUs are not a multiple (name 4 or 8)"),
        ("v100-dgx-1:3", "v100-dgx-1 has 8 NPUs, or 4 of them, not 3 (name v100-dgx-1 or v100-dgx-1:4)"),
        ("trn2-node:24", "trn2-node has nodes of 16 NPUs, and 24 NPUs are not a multiple (name 16 or 32)"),
        ("h100-dgx:8,node=0", "h100-dgx has no nodes of node=0"),
        ("h100-dgx:8,card=2", "machines have no option 'card'"),
        ("tpu-v4-pod:64,node=4", "tpu-v4-pod has no nodes of node=4"),
        ("h100-dgx:8,cards=9", "9 cards for 8 NPUs: several cards of an NPU count as one"),
    ],
)
def test_unknown_machines_are_refused_in_one_sentence(
    text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", text]) == 2
    assert sentence in capsys.readouterr().err


def test_commands_take_a_machine_in_place_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = ["make", "all_reduce", "--machine", "h100-dgx:16", "--bytes", "1MiB", "-o", "ar"]
    assert main(make) == 0
    assert "--machine h100-dgx:16" in capsys.readouterr().out
    assert main(["check", "ar", "--machine", "h100-dgx:16"]) == 0
    assert main(["run", "ar", "--machine", "h100-dgx:16", "--detail", "path", "--json"]) == 0
    assert main(["inspect", "ar.run", "critical-path", "--vary", "bandwidth of dimension 1=2"]) == 0
    assert main(["collective", "ring", "--machine", "h100-dgx"]) == 0
    capsys.readouterr()
    assert main(["machine", "--json"]) == 0
    assert [load["name"] for load in json.loads(capsys.readouterr().out)] == list(names())
    assert main(["run", "ar", "--system", "x.json"]) == 2
    assert "network is missing (give --network, or name a machine with --machine" in capsys.readouterr().err


def test_python_reports_a_missing_option() -> None:
    options: dict[str, Any] = {}
    with pytest.raises(EtSimError, match="system and network are missing"):
        et_sim.simulate(training(2), **options)


def test_a_machine_by_name_tracks_memory_only_if_there_are_tensors() -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", num_ops=1 << 20, tensor_bytes=1 << 20)
    silent = et_sim.simulate(et_sim.Workload.of([build.build()] * 8), machine="h100-dgx:8")
    assert silent.manifest["warnings"] == []
    assert silent.peak_memory_bytes is None
    build.compute("more", num_ops=1, tensor_bytes=1, outputs={"weights": 1 << 20})
    marked = et_sim.simulate(et_sim.Workload.of([build.build()] * 8), machine="h100-dgx:8")
    assert set(marked.peak_memory_bytes.tolist()) == {1 << 20}
    given = preset("h100-dgx:8").system
    requested = et_sim.simulate(
        et_sim.Workload.of([build.build()] * 8), system=given, network=preset("h100-dgx:8").network
    )
    assert [warning["key"] for warning in requested.manifest["warnings"]] == ["local-mem-capacity"]


def test_parts_outside_a_fit_are_stated() -> None:
    """Check that a mean of |ln| of 0.1 is a standard error of 0.1253 of a normal distribution."""
    result = accuracy_entry([np.exp(0.1), np.exp(-0.1)])
    assert result == {"basis": "calibrated", "random": 0.1253, "common": 0.03}
    assert read_machine(
        system={"accuracy": {"library": result}}, network=ring(4, "1GB/s")
    ).system.accuracy.terms["library"] == ErrorTerm("calibrated", 0.1253, 0.03)


def test_nodes_have_cards_in_proportion_and_may_be_of_any_size() -> None:
    assert preset("h100-dgx:32,node=16").network["npus_count"] == [16, 2]
    assert preset("h100-dgx:8,node=4").network["npus_count"] == [4, 2]
    graph = preset("l40s-node:8,node=4").network["graph"]
    assert (graph["npus-per-node"], graph["npus-per-nic"]) == (4, 2)
    assert preset("l40s-node:8,node=4").text == "l40s-node:8,node=4"
    thirds = preset("h100-dgx:16,cards=3").network  # no whole NPUs to a card: each has its share
    assert [parse_bandwidth(third) for third in thirds["bandwidth"]] == [450, 18.75]
    for text, card in (("h100-dgx:16,cards=4", 50), ("l40s-node:16", 25)):
        result = preset(text)
        library = read_machine(system=result.system, network=result.network).system.library
        assert library is not None
        assert (library.wires.cards, library.wires.card) == (4, pytest.approx(card))


def test_validation_refuses_options_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--machine", "h100-dgx:8,node=4"]) == 2
    assert "h100-dgx:8,node=4: node=4 is not supported" in capsys.readouterr().err


@pytest.mark.parametrize("text", [*names(), "h100-dgx:16,cards=2", "mi300x-node:16,cards=4", "l40s-node:16"])
def test_every_machine_lists_the_links_of_its_npus(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", text]) == 0
    out = capsys.readouterr().out
    assert out.startswith(preset(text).text + ": ")
    assert ("NPUs to a card" in out) == (text.endswith(("cards=2", "cards=4")) or text == "l40s-node:16")


@pytest.mark.deep
def test_npus_on_pcie_have_one_link_for_their_node_and_the_others() -> None:
    """Check that bytes from the next node and from the next card of the node share the same 31.5 GB/s."""
    size = 10_000_000
    workload = sent(16, [(source, 0, size) for source in (2, 8)])
    took = et_sim.simulate(workload, machine="l40s-node:16", model="flow").makespan_ns
    assert took == pytest.approx(2 * size / 31.5, rel=0.01)


SHARED = "h100-dgx:16,cards=2"  # 50 GB/s for four


@pytest.mark.parametrize("model", ["flow", "link"])
@pytest.mark.parametrize("of_node", [1, 2, 4, 8])
def test_npus_that_share_a_card_get_it_together(of_node: int, model: str) -> None:
    """Send 10 MB each to the other node, at 50 GB/s: messages on one card go one after the other."""
    size = 10_000_000
    workload = sent(16, [(rank, rank + 8, size) for rank in range(of_node)])
    took = et_sim.simulate(workload, machine=SHARED, model=model).makespan_ns
    wire = min(of_node, 4) * size / 50
    stored = 3 * size / 50 if model == "link" else 0  # whole messages, on four links
    assert took == pytest.approx(wire + stored + 1200, abs=50)


@pytest.mark.deep
def test_collectives_of_some_npus_of_each_node_use_their_cards_and_no_more() -> None:
    for kind, bytes_of_wire in (("all_reduce", 1.0), ("all_to_all", 0.5)):
        for members, sharers in (((0, 8), 1), ((0, 1, 8, 9), 2), ((0, 4, 8, 12), 1)):
            size, build = 512 << 20, et_sim.TraceBuilder()
            build.collective(kind, size, group="some")
            idle = et_sim.TraceBuilder().build()
            traces = [build.build() if rank in members else idle for rank in range(16)]
            took = et_sim.simulate(
                et_sim.Workload.of(traces), machine=SHARED, groups={"some": list(members)}, model="flow"
            ).makespan_ns
            each = bytes_of_wire * size / (len(members) / 2 if kind == "all_reduce" else 1)
            assert each * sharers / 50 <= took, (kind, members)
            assert took <= 2.3 * each * sharers / 50, (kind, members)


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all"])
def test_long_collectives_of_a_machine_like_another_are_in_proportion_to_its_links(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    build = et_sim.TraceBuilder()
    build.collective(kind, 1 << 30)
    workload = et_sim.Workload((build.build(),), np.zeros(8, np.int32))
    slow, fast = (
        et_sim.simulate(workload, machine=name).makespan_ns for name in ("h800-node:8", "h100-dgx:8")
    )
    assert slow / fast == pytest.approx(450 / 200, rel=0.1)


def test_widths_are_those_of_the_kind_of_collective_the_device_and_the_network() -> None:
    def accuracy(name: str) -> Accuracy:
        known = preset(name)
        found = read_machine(system=known.system, network=known.network).system.accuracy
        assert found is not None
        return found

    fitted, by_others = accuracy("a100-dgx-80gb:16"), accuracy("a100-dgx-40gb:16")
    name = of_kind(SMALL_LIBRARY, "all_gather")
    assert fitted.of_library("all_gather", 1 << 20, is_on_one_node=True) == name
    assert fitted.terms[name].basis == CALIBRATED
    assert fitted.of_library("broadcast", 1 << 20, is_on_one_node=True) == SMALL_LIBRARY
    assert by_others.of_library("all_gather", 1 << 20, is_on_one_node=True) == SMALL_LIBRARY
    assert name not in by_others.terms
    near, far = (accuracy(f"h100-dgx:16,network={kind}").terms for kind in ("infiniband", "efa"))
    assert near[BETWEEN_NODES].common < far[BETWEEN_NODES].common
    roce, unknown = (accuracy(f"h100-dgx:16,network={kind}").terms for kind in ("roce", "unknown"))
    small = {name: terms[SMALL_BETWEEN_NODES] for name, terms in (("roce", roce), ("unknown", unknown))}
    assert (small["roce"].basis, small["unknown"].basis) == (CALIBRATED, ASSUMED)
    assert small["roce"].common > 2 * near[SMALL_BETWEEN_NODES].common
    assert small["unknown"].bias > 0.5  # most other kinds are slower than InfiniBand
    assert ErrorTerm.read(widths_between("unknown")[SMALL_BETWEEN_NODES]) == small["unknown"]
    assert accuracy("a100-dgx-40gb:16,network=efa-1").terms[BETWEEN_NODES] == far[BETWEEN_NODES]
    assert not [each for each in (*fitted.terms, *near) if " on " in each]


def test_all_reduces_of_v100_have_widths_by_size_and_other_transfers_keep_the_default() -> None:
    known = preset("v100-dgx-1:8")
    found = read_machine(system=known.system, network=known.network).system.accuracy
    assert found is not None
    small, large = (found.of_exchange("all_reduce", size) for size in (LARGE_BYTES - 1, LARGE_BYTES))
    assert (small, large) == ("small_communication all_reduce", "communication all_reduce")
    assert found.terms[small].random > found.terms[large].random
    assert found.of_exchange("all_gather", 1) == COMMUNICATION
    assert found.terms[COMMUNICATION] == DEFAULTS[COMMUNICATION]


def test_errors_of_a_calibration_take_the_place_of_fitted_ones_of_any_kind(tmp_path: Path) -> None:
    machine = as_one_file("a100-dgx-80gb")
    own = {"basis": "calibrated", "random": 0.3, "common": 0.03}
    machine["accuracy"] = {**machine["accuracy"], SMALL_LIBRARY: own}
    machine["device"]["accuracy"] = {**machine["device"]["accuracy"], "short_attention": own}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(machine))
    known = preset(f"{file}:8")
    found = read_machine(system=known.system, network=known.network).system.accuracy
    assert found is not None
    assert found.terms["short_attention"] == ErrorTerm("calibrated", 0.3, 0.03)
    small, large = (found.of_library("all_gather", size, is_on_one_node=True) for size in (1 << 20, 1 << 30))
    assert (small, found.terms[small].random) == (SMALL_LIBRARY, 0.3)
    assert large == "library all_gather"
