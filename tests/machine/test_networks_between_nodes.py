"""Kinds of network between nodes: the named network is timed, and no collective is faster than its cards.

`data/several_nodes.json` has every third row of public logs and documentation, each cited by `source`; their
licence does not allow them in the package.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import et_sim
from et_sim.basics.errors import EtSimError, MachineError
from et_sim.basics.units import parse_bandwidth
from et_sim.machine.accuracy import BETWEEN_NODES, SMALL_BETWEEN_NODES
from et_sim.machine.collective_library import Call, Library, LibraryProtocol
from et_sim.machine.collective_library.between import KINDS, Between, network_kind
from et_sim.machine.collective_library.choice import Calibration
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.presets import entry, preset
from et_sim.machine.readers import read_machine
from et_sim.validation.networks import machine_measured
from et_sim.validation.predictions import machine_named
from et_sim.validation.rows import Errors
from et_sim.workloads.microbenchmarks import make_microbenchmark

MIB = 1 << 20
TABLES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/several_nodes.json").read_text())


@cache
def library(machine: str) -> Library:
    known = preset(machine)
    named = read_machine(system=known.system, network=known.network).system.library
    assert named is not None
    return named


def time_us(machine: str, kind: str, size: int) -> float:
    named, ranks = library(machine), preset(machine).npus
    return named.choice(Call(kind, ranks, -(-ranks // named.node), size)).time_us


def test_every_kind_has_a_file_with_its_accuracy_and_where_its_figures_are_from() -> None:
    folder = files("et_sim.machine.presets") / "networks"
    assert {file.name.removesuffix(".json") for file in folder.iterdir()} == set(KINDS)
    for kind in KINDS:
        known = network_kind(kind)
        assert known["sources"] or known["estimates"]
        assert set(known["accuracy"]) == {BETWEEN_NODES, SMALL_BETWEEN_NODES}
        machine = preset(f"h100-dgx:16,network={kind}").system["accuracy"]
        for name in known["accuracy"]:
            assert {"basis", "random", "common"} <= set(machine[name])  # by hand, or fitted to labs left out


@settings(deadline=None)
@given(
    cards=st.sampled_from(["1x64Gbps", "2x100Gbps", "4x200Gbps", "8x400Gbps", "32x100Gbps", "8x2x100Gbps"]),
    network=st.sampled_from(KINDS),
    name=st.sampled_from(["a100-dgx-80gb", "h100-dgx", "b200-dgx", "mi300x-node", "l40s-node"]),
    nodes=st.integers(2, 40),
    node=st.sampled_from([1, 2, 4, 8]),
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"]),
    size=st.integers(1, 1 << 36),
    algorithms=st.sampled_from([(), ("ring",), ("tree",), ("nvls-tree",)]),
)
def test_no_way_beats_the_cards_of_a_node(
    cards: str, network: str, name: str, nodes: int, node: int, kind: str, size: int, algorithms: Any
) -> None:
    """Check against the least bytes that leave a node.

    In the mean of nodes these are 2 (n-1)/n S for rings and 2 (N-1)/N S for trees, no less than S for an
    all-reduce; half of that for gathers; for all pairs, the bytes for other nodes.
    """
    named = replace(library(f"{name}:{node * nodes},node={node},cards={cards},network={network}"))
    named = replace(named, algorithms=algorithms)
    count, *rest = cards.removesuffix("Gbps").split("x")
    rate = int(count) * math.prod(map(float, rest)) / 8
    ranks = node * nodes
    away = (nodes - 1) / nodes
    leaves = size * away * (2 if kind == "all_reduce" else 1)
    if kind == "all_to_all":
        leaves = node * size * away
    assert named.choice(Call(kind, ranks, nodes, size)).time_us >= 0.999 * leaves / 1000 / rate


def test_a_run_on_other_cards_and_networks_takes_the_time_of_the_library() -> None:
    for machine in ("h100-quad:16,cards=2x200Gbps,network=slingshot", "a100-dgx-40gb:16,network=efa-1"):
        for kind, size in (("all_reduce", 1 << 28), ("all_reduce", 1000), ("reduce_scatter", MIB)):
            workload = make_microbenchmark(kind, ranks=16, size=size)
            ran = et_sim.simulate(workload, machine=machine).makespan_ns / 1000
            assert ran == pytest.approx(time_us(machine, kind, size), rel=0.001)


def test_the_first_efa_uses_simple_alone_and_reports_its_latency_to_the_library() -> None:
    call = Call("all_reduce", 16, 2, 8)
    assert library("a100-dgx-40gb:16,network=efa-1").choice(call).protocol is LibraryProtocol.SIMPLE
    assert library("a100-dgx-40gb:16").choice(call).protocol is LibraryProtocol.LL
    assert (
        library("a100-dgx-40gb:16,network=efa-1").choice(Call("all_reduce", 8, 1, 8)).protocol
        is LibraryProtocol.LL
    )
    near, reported = (library(f"h100-dgx:16{network}").way(call) for network in ("", ",network=efa"))
    assert reported.between_us == near.between_us + 2 * 75  # two messages of a tree over two nodes


def test_bytes_take_blackwell_no_longer_than_hopper_over_the_same_cards() -> None:
    """Compare differences of two sizes, as launches and steps on a node were measured to differ."""
    for ranks in (16, 128, 1024):
        added = [
            [time_us(f"{name}:{ranks}", kind, 32 << 30) - time_us(f"{name}:{ranks}", kind, 16 << 30)]
            for kind in ("all_gather", "reduce_scatter")
            for name in ("h100-dgx", "b200-dgx")
        ]
        assert added == [pytest.approx(added[0])] * 4
    hopper, blackwell = (time_us(f"{name}:16", "all_reduce", 1 << 30) for name in ("h100-dgx", "b200-dgx"))
    assert blackwell < hopper  # whose switches reduce more slowly than the cards carry


def test_messages_take_longer_over_networks_that_are_slower() -> None:
    times = [
        time_us(f"h100-dgx:16,cards=8x200Gbps,network={kind}", "all_gather", 1024)
        for kind in ("infiniband", "roce", "efa", "tcpx")
    ]
    assert times == sorted(times)
    assert times[3] - times[0] == pytest.approx(57 - 1.4, abs=0.001)  # one message


def test_figures_of_a_kind_may_be_replaced_in_the_system_file() -> None:
    known = preset("h100-dgx:16")

    def read(between: dict[str, Any]) -> Between | None:
        system = {**known.system, "library": {**known.system["library"], "between": between}}
        named = read_machine(system=system, network=known.network).system.library
        assert named is not None
        return named.between

    assert read({"kind": "efa", "latency": "20us"}) == replace(read({"kind": "efa"}), latency_ns=20_000.0)  # type: ignore[type-var]
    assert read({"share": 0.5}) == Between(share=0.5)
    for wrong, why in (
        ({"kind": "ethernet"}, '"kind" is "ethernet"'),
        ({"share": 1.5}, '"share" is 1.5'),
        ({"share": 0}, '"share" is 0'),
        ({"latency": "-1us"}, '"latency" is'),
        ({"protocols": ["LL64"]}, '"protocols"'),
        ({"speed": 1}, 'key "speed" is not known'),
    ):
        with pytest.raises(MachineError) as raised:
            read(wrong)
        assert why in str(raised.value)


def test_cards_have_ports_and_rates_and_several_of_an_npu_are_one() -> None:
    for cards, each in (("8x2x100Gbps", 25), ("32x100Gbps", 50), ("8x50GB/s", 50), ("16x200Gbps", 50)):
        network = preset(f"h100-dgx:16,cards={cards}").network
        assert parse_bandwidth(network["bandwidth"][1]) == each
        assert library(f"h100-dgx:16,cards={cards}").wires.cards == 8
    graph = preset("h100-dgx:16,cards=2x400Gbps").network["graph"]
    assert (graph["npus-per-nic"], parse_bandwidth(graph["bandwidth"])) == (4, 50)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("h100-dgx:16,network=ethernet", "kind of network 'ethernet' is not known"),
        ("h100-dgx:16,network=infinband", "did you mean 'infiniband'?"),
        ("h100-dgx:16,cards=fast", "'fast' does not describe network cards"),
        ("h100-dgx:16,cards=0x100Gbps", "'0x100Gbps' does not describe network cards"),
        ("h100-dgx:16,cards=8x100", "'8x100' does not describe network cards"),
        ("h100-dgx:16,node=four", "'four' is not a number of NPUs"),
        ("h100-dgx:16,cards=16", "16 cards for 8 NPUs: several cards of an NPU count as one"),
        ("h100-dgx:16,speed=3", "machines have no option 'speed'"),
    ],
)
def test_unknown_networks_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(EtSimError) as raised:
        preset(text)
    assert sentence in str(raised.value)


def _ratios(table: dict[str, Any]) -> list[tuple[int, float]]:
    measured = machine_measured(
        machine_named(table["hardware"]) or "",
        table["gpus"],
        table["nodes"],
        table["hardware"],
        table["interconnect"],
    )
    named, dtype = library(measured.text), datatype_named(table["dtype"]) or ""
    if table["algo_forced"]:
        named = replace(named, algorithms=(table["algo_forced"].lower(),))
    nodes = -(-table["gpus"] // named.node)
    return [
        (size, named.choice(Call(table["collective"], table["gpus"], nodes, size, dtype)).time_us / us)
        for size, us in table["rows"]
    ]


NOT_STATED = ("vidur", "h20x16", "kestrel", "gb200x128")  # cards, rates, or both


def test_tables_whose_source_states_cards_are_near_by_kind_of_network() -> None:
    large, every = defaultdict[str, list[float]](list), list[float]()
    for table in TABLES:
        if table["id"].startswith(NOT_STATED) or any(word in table["id"] for word in NOT_STATED):
            continue
        for size, ratio in _ratios(table):
            every.append(ratio)
            if size >= 64 * MIB:
                large[table["id"].rpartition("_")[2]].append(ratio)
    assert Errors.of(every).e < 20
    assert Errors.of([ratio for ratios in large.values() for ratio in ratios]).e < 8
    assert all(Errors.of(ratios).e < 20 for ratios in large.values())


def test_slow_cards_are_near_though_nothing_is_fitted_to_them() -> None:
    """Check two nodes whose cards were seen at 8 GB/s, from 1 MiB on: below, the source calls them noisy."""
    slow = [table for table in TABLES if table["id"].startswith("vidur")]
    ratios = [ratio for table in slow for size, ratio in _ratios(table) if size >= MIB]
    assert len(ratios) > 5
    assert Errors.of(ratios).e < 25


@given(node=st.floats(0.1, 1000), part=st.floats(0.01, 1), size=st.integers(1, 1 << 36))
def test_first_bytes_take_less_extra_time_over_slow_nodes_alone(node: float, part: float, size: int) -> None:
    usual = Between(fill=1.5, fill_size=22 * MIB)
    extra = replace(usual, fill_rate=50.0).fill_us(size, part * node, node)
    whole = usual.fill_us(size, part * node, node)
    assert extra == (whole if node >= 50 else pytest.approx(node / 50 * whole))


def test_groups_of_a_few_devices_of_fast_nodes_have_the_whole_extra_time() -> None:
    """Check that the rate of nodes counts, and not that of the group's cards."""
    named = library("h100-dgx:64,network=infiniband")
    assert named.between is not None
    without = replace(named, between=replace(named.between, fill_rate=0.0))
    alone = Call("all_reduce", 8, 8, 64 * MIB)  # a device of each node
    assert named.choice(alone).time_us == without.choice(alone).time_us


def test_between_nodes_steps_with_simple_have_one_factor_and_all_others_that_of_ll() -> None:
    named = replace(library("h100-dgx:16,network=infiniband"), algorithms=("ring",))

    def time_with(protocol: LibraryProtocol, **factors: float) -> float:
        only = replace(named, protocols=(protocol,), calibration=Calibration(**factors))
        return only.choice(Call("all_reduce", 16, 2, MIB)).time_us

    for protocol in LibraryProtocol:
        usual, is_simple = time_with(protocol), protocol is LibraryProtocol.SIMPLE
        assert (time_with(protocol, step_simple=3.0) > usual) is is_simple
        assert (time_with(protocol, step_ll=3.0) > usual) is not is_simple


def test_cards_may_be_written_with_spaces() -> None:
    spaced, plain = preset("h100-dgx:64,cards=8x2x100 Gb/s"), preset("h100-dgx:64,cards=8x2x100Gb/s")
    assert (spaced.system, spaced.network) == (plain.system, plain.network)


def test_sources_are_those_of_the_options() -> None:
    usual, chosen = entry("h100-dgx"), entry("h100-dgx", ",cards=8x200Gbps,network=efa")
    assert "bandwidth of dimension 1" in usual.sources
    assert "bandwidth of dimension 1" not in chosen.sources
    assert "(P5, aws-samples" in chosen.sources["network between nodes, figures"]
    assert "(P5, aws-samples" not in usual.sources["network between nodes, figures"]
