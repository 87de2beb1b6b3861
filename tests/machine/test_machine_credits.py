"""The key `credits` of the network file, and files of Garnet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import network, simulate, system

from et_sim.basics.errors import EtSimError
from et_sim.machine import read_network_alone
from et_sim.machine.credits import filled_in
from et_sim.machine.model import GraphFabric
from et_sim.machine.transports import Credits
from et_sim.trace import TraceBuilder

LINES = {
    "num-npus": "16",
    "num-packages": "4",
    "package-rows": "2",
    "topology": "Torus3D",
    "local-rings": "3",
    "vertical-rings": "1",
    "horizontal-rings": "2",
    "flit-width": "2048",
    "local-packet-size": "512",
    "package-packet-size": "4096",
    "tile-link-width": "256",
    "package-link-width": "128",
    "vcs-per-vnet": "50",
    "routing-algorithm": "Ring_XY",
    "router-latency": "2",
    "local-link-latency": "90",
    "package-link-latency": "200",
    "buffers-per-vc": "5000",
    "local-link-efficiency": "0.94",
}


LARGE = {"generator": "torus", "sizes": [16, 16], "bandwidth": "32GB/s", "latency": "50ns"}


def garnet(folder: Path, **changed: str | None) -> Path:
    words = LINES | {name.replace("_", "-"): value for name, value in changed.items()}
    path = folder / "garnet.txt"
    path.write_text("".join(f"{name}: {value}\n" for name, value in words.items() if value is not None))
    return path


def torus(**credits: Any) -> dict[str, Any]:
    shape = {"generator": "torus", "sizes": [4, 4], "bandwidth": "32GB/s", "latency": "50ns"}
    return {"graph": shape, "credits": credits}


def one_message(size: int, ranks: int, target: int) -> list[TraceBuilder]:
    builders = [TraceBuilder() for _ in range(ranks)]
    builders[0].send(target, size, tag=1)
    builders[target].receive(0, size, tag=1)
    return builders


def test_credits_are_read_with_their_units() -> None:
    given = torus(flit=64, packet=512, cycle="0.5ns", channels=3, buffer=4, padding=True, turns="flit")
    assert read_network_alone(given).credits == Credits(64, 512, 3, 4, 1, 500, pads=True, turns_of_flits=True)
    assert read_network_alone(torus()).credits == Credits()
    in_units = given | {"credits": given["credits"] | {"flit": "64B", "packet": "0.5KiB"}}
    assert read_network_alone(in_units).credits == read_network_alone(given).credits


@pytest.mark.parametrize(
    ("size", "target", "cycle", "channels"),
    [(0, 1, 1, 1), (5000, 5, 1, 2), (4096, 2, 2, 1), (300, 6, 0.5, 1)],
)
def test_a_lone_message_takes_the_time_of_the_formula(
    size: int, target: int, cycle: float, channels: int
) -> None:
    """Send a message of one packet, or of several that never wait for a channel."""
    given = torus(flit=64, packet=8192, cycle=cycle, channels=channels, **{"router-cycles": 3})
    flits, links = max(-(-size // 64), 1), {1: 1, 2: 2, 5: 2, 6: 3}[target]
    per_flit, wire = -(-64 // int(32 * cycle)), round(50 / cycle)
    cycles = 1 + links * (3 + per_flit + wire) + (flits - 1) * per_flit + 3 + 1
    result = simulate(one_message(size, 16, target), given, system(dimensions=2), model="packet")
    assert result.finish_ns[target] == -(-cycles * cycle // 1)


@pytest.mark.parametrize(("rate", "cycle_ps"), [(32, 1000), (64, 1000), (64.1, 999), (900, 72)])
def test_the_default_cycle_is_that_of_the_fastest_link_alone(rate: float, cycle_ps: int) -> None:
    """Take the largest part of a flit's time that is at most a nanosecond, whatever the slower links."""
    for rates in ([rate], [rate, 32.0], [1.0, rate]):
        assert filled_in(Credits(flit=64), rates, [50.0] * len(rates)).cycle_ps == cycle_ps


def test_default_channels_are_those_of_the_longest_link_alone() -> None:
    settings = Credits(flit=64, cycle_ps=1000)
    far = filled_in(settings, [32.0], [500.0]).channels
    near = filled_in(settings, [32.0], [5.0]).channels
    assert far is not None
    assert near is not None
    assert near < far
    assert filled_in(settings, [32.0, 32.0], [5.0, 500.0]).channels == far


@pytest.mark.deep
def test_default_channels_keep_a_link_busy() -> None:
    size = 1 << 20
    result = simulate(one_message(size, 16, 1), torus(), system(dimensions=2), model="packet")
    assert size / 32 < result.makespan_ns < size / 32 + 100
    starved = simulate(one_message(size, 16, 1), torus(channels=1), system(dimensions=2), model="packet")
    assert starved.makespan_ns > 1.5 * size / 32


@pytest.mark.deep
def test_lists_of_dimensions_and_the_same_graph_take_the_same_time() -> None:
    builders = [TraceBuilder() for _ in range(12)]
    for builder in builders:
        builder.collective("all_reduce", 30_000)
    credits = {"credits": {"flit": 128, "packet": 1024}}
    described = system(dimensions=2, profile="corrected")
    listed = {**network(["Ring", "Ring"], [4, 3], bandwidth=32, latency=50), **credits}
    shape = {"generator": "torus", "sizes": [4, 3], "bandwidth": f"{32 * 2**30}B/s", "latency": 50}
    of_list = simulate(builders, listed, described, model="packet").finish_ns
    other = simulate(builders, {"graph": shape, **credits}, described, model="packet").finish_ns
    assert of_list.tolist() == other.tolist()


def test_a_file_of_garnet_gives_the_same_network_as_lists(tmp_path: Path) -> None:
    result = read_network_alone(str(garnet(tmp_path)))
    assert result.credits == Credits(256, 4096, 50, 5000, 2, 1000, pads=True, turns_of_flits=True)
    assert [dimension.npus for dimension in result.grid.dimensions] == [4, 2, 2]
    assert isinstance(result.fabric, GraphFabric)
    graph = result.fabric.graph
    ends = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    local = [row for row, (first, other) in enumerate(ends) if first // 4 == other // 4]
    assert len(local) == 2 * 16
    assert sorted({ends[row] for row in local if ends[row][0] == 0}) == [(0, 1), (0, 3)]
    assert np.isclose(graph.bytes_per_ns[ends.index((0, 1))], 2 * 32)  # two of three rings
    assert np.isclose(graph.bytes_per_ns[ends.index((1, 0))], 32)
    assert np.isclose(graph.bytes_per_ns[ends.index((0, 4))], 2 * 16)  # horizontal: both rings lead there
    assert np.isclose(graph.bytes_per_ns[ends.index((0, 8))], 16)
    assert (graph.latency_ns[local] == 90).all()


def test_a_switch_of_garnet_has_the_links_of_all(tmp_path: Path) -> None:
    path = garnet(tmp_path, topology="NV_Switch", links_per_tile="4")
    result = read_network_alone(str(path))
    assert isinstance(result.fabric, GraphFabric)
    assert len(result.fabric.graph) == 17
    assert np.allclose(result.fabric.graph.bytes_per_ns, 4 * 32)


def test_keys_that_garnet_ignores_are_warnings(tmp_path: Path) -> None:
    builders = one_message(100, 16, 1)
    result = simulate(builders, str(garnet(tmp_path)), system(dimensions=3), model="packet")  # type: ignore[arg-type]
    texts = " ".join(warning["text"] for warning in result.manifest["warnings"])
    for name in ("package-packet-size in every dimension", "does not apply it", "shortest paths"):
        assert name in texts


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"num_npus": "15"}, "line 2: 15 NPUs do not divide among 4 packages"),
        ({"package_rows": "3"}, "line 3: 4 packages do not divide among 3 rows"),
        ({"topology": "Torus5D"}, "line 4: topology is Torus5D"),
        ({"flit_width": "2047"}, "line 8: flit-width is 2047 bits"),
        ({"vcs_per_vnet": "0"}, "line 13: vcs-per-vnet is 0"),
        ({"num_npus": "409616"}, "line 1: num-npus is 409616 (allowed: 1 to 4,096)"),
        ({"flit_width": None}, "flit-width is missing"),
        ({"flitwidth": "7"}, "line 20: key 'flitwidth' is not known (did you mean 'flit-width'?)"),
    ],
)
def test_faults_of_a_file_of_garnet_are_reported_with_their_lines(
    tmp_path: Path, changed: dict[str, str | None], wanted: str
) -> None:
    with pytest.raises(EtSimError) as caught:
        read_network_alone(str(garnet(tmp_path, **changed)))
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (torus(flit=64, packet=32), "a flit of 64 bytes is longer than a packet"),
        (torus(cycle="0.0001ns"), "not a whole number of picoseconds"),
        ({**torus(), "protocol": {"preset": "roce"}}, "exclude each other"),
        ({**torus(), "routing": "ecmp-ns3"}, "require one route for all messages"),
        (torus(flit=1, packet=1, cycle="1ns", channels=4096) | {"graph": LARGE}, "channels for each of"),
    ],
)
def test_faults_of_credits_are_reported(given: dict[str, Any], wanted: str) -> None:
    ranks = 256 if given["graph"] is LARGE else 16
    with pytest.raises(EtSimError) as caught:
        simulate(one_message(1, ranks, 1), given, system(dimensions=2), model="packet")
    assert wanted in str(caught.value)


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_other_models_refuse_credits(model: str) -> None:
    with pytest.raises(EtSimError) as caught:
        simulate(one_message(1, 16, 1), torus(), system(dimensions=2), model=model)
    assert "take --network-model packet" in str(caught.value)


@pytest.mark.deep
def test_the_default_cycle_lets_fast_links_carry_their_bandwidth() -> None:
    shape = {"generator": "ring", "npus": 2, "bandwidth": "900GB/s", "latency": "50ns"}
    builders = one_message(1 << 20, 2, 1)
    for given in ({"flit": 256}, {"flit": 64, "packet": 64}):
        result = simulate(builders, {"graph": shape, "credits": given}, system(), model="packet")
        assert (1 << 20) / 900 < result.makespan_ns < 1.2 * (1 << 20) / 900
        assert not result.manifest["warnings"]


@pytest.mark.parametrize("given", [{"channels": 1}, {"buffer": 1, "channels": 4}, {"cycle": 100}])
def test_links_that_cannot_carry_their_bandwidth_are_warnings(given: dict[str, Any]) -> None:
    """Check that views compare with the bandwidth that the links can carry."""
    size = 1 << 18
    result = simulate(
        one_message(size, 16, 1), torus(**given), system(dimensions=2), model="packet", detail="links"
    )
    assert "a link of 32 GB/s can carry" in result.manifest["warnings"][0]["text"]
    most = result.table("resources").to_pydict()["bytes_per_ns"][0]
    assert most < 31.7
    assert size / most * 0.98 <= result.makespan_ns <= size / most * 1.1 + 200
