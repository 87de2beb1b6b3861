"""Files of ASTRA-sim 1.0: recognised by content, checked like all others, and their meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import MachineError, UsageError
from et_sim.machine import read_machine, read_network_alone, read_system_alone
from et_sim.machine.corrections import Profile
from et_sim.machine.model import DimensionOrder, DimensionShape, QueueOrder

NETWORK = {
    "topology-name": "Hierarchical",
    "dimensions-count": 2,
    "topologies-per-dim": ["Ring", "FullyConnected"],
    "units-count": [4, 3],
    "links-count": [3, 5],
    "link-latency": [500, 100.5],
    "link-bandwidth": [50, 25],
}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": "ring_direct4",
}


def as_text(settings: dict[str, Any]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in settings.items())


def machine(tmp_path: Path, system: str | None = None, **network: Any) -> Any:
    (tmp_path / "system.txt").write_text(as_text(SYSTEM) if system is None else system)
    (tmp_path / "network.json").write_text(json.dumps(NETWORK | network))
    return read_machine(system=tmp_path / "system.txt", network=tmp_path / "network.json")


def refusal(tmp_path: Path, system: str | None = None, **network: Any) -> str:
    with pytest.raises(MachineError) as caught:
        machine(tmp_path, system, **network)
    return str(caught.value)


def test_both_files_are_recognised_by_their_content(tmp_path: Path) -> None:
    read = machine(tmp_path)
    assert read.system.behaviour.profile is Profile.ASTRA_1
    assert read.system.implementations.all_reduce == ("ring", "direct4")
    assert [level.shape for level in read.network.levels] == [
        DimensionShape.RING,
        DimensionShape.FULLY_CONNECTED,
    ]
    assert read.network.ranks == 12
    # A ring uses two of three links; with five links to two peers each peer gets two.
    assert [level.links_used for level in read.network.levels] == [2, 4]
    per_ns = [level.bytes_per_ns for level in read.network.levels]
    assert per_ns == pytest.approx([100 * 2**30 / 1e9, 50 * 2**30 / 1e9])
    assert [dimension.bandwidth for dimension in read.network.grid.dimensions] == [100, 100]
    assert {notice.key for notice in read.warnings} == {"links-count"}


def test_dicts_with_the_same_keys_are_taken_too() -> None:
    read = read_machine(system=SYSTEM | {"num-passes": 3, "comm-scale": 0.5}, network=NETWORK)
    assert read.system.behaviour.profile is Profile.ASTRA_1
    assert (read.layers.passes, read.layers.comm_scale, read.layers.compute_scale) == (3, 0.5, 1.0)


def test_a_whole_file_may_be_one_line(tmp_path: Path) -> None:
    assert machine(tmp_path, as_text(SYSTEM).replace("\n", " ")).system == machine(tmp_path).system


def test_names_of_2023_mean_those_of_2022(tmp_path: Path) -> None:
    old = {"inter-dimension-scheduling": "offlineGreedyFlex", "intra-dimension-scheduling": "smallestFirst"}
    new = {"inter-dimension-scheduling": "themisFlex", "intra-dimension-scheduling": "SCF"}
    systems = [machine(tmp_path, as_text(SYSTEM | names)).system for names in (old, new)]
    assert systems[0] == systems[1]
    assert systems[0].dimension_order is DimensionOrder.OFFLINE_GREEDY_FLEX
    assert systems[0].queue_order is QueueOrder.SMALLEST_FIRST


def test_options_of_the_command_line_replace_the_network_s_lists(tmp_path: Path) -> None:
    read = machine(tmp_path, as_text(SYSTEM | {"units-count": "8_2", "link-latency": "1_2"}))
    assert [dimension.npus for dimension in read.network.grid.dimensions] == [8, 2]
    assert [level.latency_ns for level in read.network.levels] == [1, 2]


def test_the_endpoint_delay_is_scaled_and_cut(tmp_path: Path) -> None:
    read = machine(tmp_path, as_text(SYSTEM | {"injection-scale": 2.55}))
    assert read.system.endpoint_delay_ns == 25


def test_the_congestion_model_s_network_may_be_written_plainly() -> None:
    network = {"topology": "Switch", "npus_count": [8], "bandwidth": [50], "latency": [500]}
    system = SYSTEM | {"all-reduce-implementation": "direct4"}
    assert read_machine(system=system, network=network).system.behaviour.profile is Profile.ASTRA_1
    assert read_network_alone(network).ranks == 8


def test_each_file_can_be_read_by_itself(tmp_path: Path) -> None:
    machine(tmp_path)
    assert read_system_alone(tmp_path / "system.txt").splits == 4
    assert read_network_alone(tmp_path / "network.json").ranks == 12


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("endpoint-delay: 10\nten\n", "line 2, column 1: a key is expected, not 'ten'"),
        ("endpoint-delay:\nboost-mode: 1\n", 'line 1, column 1: key "endpoint-delay" has no value'),
        ("boost-mode: 1 boost-mode: 1", 'line 1, column 15: key "boost-mode" is given twice'),
        (as_text(SYSTEM | {"endpoint-delay": "ten"}), 'key "endpoint-delay" is "ten"'),
        (as_text(SYSTEM | {"scheduling-policy": "lifo"}), "did you mean 'LIFO'?"),
        (as_text({"endpoint-delay": 10}), 'key "scheduling-policy" is missing'),
        (as_text(SYSTEM | {"all-reduce-implementation": "ring_rong"}), "is not an algorithm"),
        (as_text(SYSTEM | {"all-reduce-implementation": "ring_ring_ring"}), "has 3 entries"),
        (as_text(SYSTEM | {"intra-dimension-scheduling": "scf"}), "did you mean 'SCF'?"),
        (as_text(SYSTEM | {"units-count": "4"}), 'system.txt: key "units-count" has 1 entry, and'),
        (as_text(SYSTEM | {"links-count": "1_2"}), 'system.txt: key "links-count" index 0 is 1: too few'),
        ("scheduling-policy LIFO", "neither JSON, as system files of 2.x, nor the text of 1.0"),
    ],
)
def test_a_wrong_system_file_is_refused_with_its_place(text: str, cause: str, tmp_path: Path) -> None:
    assert cause in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"links-count": [1, 4]}, "too few for a Ring of 4 NPUs (allowed: at least 2 links)"),
        ({"links-count": [2, 1]}, "too few for a FullyConnected of 3 NPUs (allowed: at least 2 links, one"),
        ({"units-count": [4]}, 'network.json: key "units-count" has 1 entry, and "dimensions-count" is 2'),
        ({"units-count": 4}, 'key "units-count" is 4'),
        ({"units-count": [4, 0]}, 'key "units-count" index 1 is 0'),
        ({"link-bandwidth": [50, 0]}, 'key "link-bandwidth" index 1 is 0'),
        ({"topologies-per-dim": ["Ring", "Mesh"]}, 'key "topologies-per-dim" index 1 is "Mesh"'),
        ({"hbm-scale": [1, 1], "hbm-bandwidth": [0, 1]}, 'key "hbm-bandwidth" index 0 is 0'),
        ({"topology-name": "Torus2D"}, 'write "Hierarchical", and "topologies-per-dim": ["Ring", "Ring"]'),
        ({"units-count": [2**20, 2**20], "links-count": [2, 2**21]}, "at most 2147483647 NPUs in all"),
    ],
)
def test_a_wrong_network_file_is_refused_with_its_place(
    change: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    assert cause in refusal(tmp_path, **change)


def test_overrides_need_a_network_of_1_0() -> None:
    network = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    with pytest.raises(MachineError, match=r"the network file is of 2\.x"):
        read_machine(system=SYSTEM | {"profile": "astra-1.0", "units-count": [4]}, network=network)


def test_a_system_in_text_has_the_profile_of_1_0_and_no_other(tmp_path: Path) -> None:
    machine(tmp_path)
    files = {"system": tmp_path / "system.txt", "network": tmp_path / "network.json"}
    assert read_machine(**files, profile="astra-1.0").system == read_machine(**files).system
    with pytest.raises(UsageError, match=r"cannot be 'corrected': the system file is of ASTRA-sim 1\.0"):
        read_machine(**files, profile="corrected")
