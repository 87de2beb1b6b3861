"""The remote-memory and the communicator-group file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import RING_4
from test_machine_system import warnings

from et_sim.basics.errors import MachineError
from et_sim.machine import Machine, MemoryKind, RemoteMemory, read_machine

NODES = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-bw": 100}


def with_memory(memory: dict[str, Any]) -> Machine:
    return read_machine(system={}, network=RING_4, memory=memory)


def memory_refusal(memory: dict[str, Any]) -> str:
    with pytest.raises(MachineError) as caught:
        with_memory(memory)
    return str(caught.value)


def with_groups(groups: Any) -> Machine:
    return read_machine(system={}, network=RING_4, groups=groups)


def groups_refusal(groups: Any) -> str:
    with pytest.raises(MachineError) as caught:
        with_groups(groups)
    return str(caught.value)


def test_without_a_memory_file_there_is_none_and_that_is_recorded() -> None:
    machine = read_machine(system={}, network=RING_4)
    assert machine.memory == RemoteMemory()
    assert ("<memory>", "memory-type") in [(notice.place, notice.key) for notice in machine.defaults]


def test_memory_keys_land_in_their_fields() -> None:
    keys = {"remote-mem-latency": 10, "num-nodes": 2, "num-npus-per-node": 2}
    machine = with_memory(NODES | keys)
    assert machine.memory == RemoteMemory(MemoryKind.PER_NODE, 10, 100, 2, 2)
    assert not machine.warnings


@pytest.mark.parametrize("kind", [kind for kind in MemoryKind if kind is not MemoryKind.HIERARCHICAL_POOL])
def test_each_memory_type_is_read(kind: MemoryKind) -> None:
    keys = {"memory-type": kind.value, "remote-mem-bw": 1, "num-nodes": 4, "num-npus-per-node": 1}
    assert with_memory(keys).memory.kind is kind


def test_the_memory_type_is_required_and_checked() -> None:
    assert 'key "memory-type" is missing (allowed: NO_MEMORY_EXPANSION, ' in memory_refusal(
        {"remote-mem-bw": 1}
    )
    assert "did you mean 'MEMORY_POOL'?" in memory_refusal({"memory-type": "MEMORY_POOLS"})
    assert 'key "memory-type" is "CXL"' in memory_refusal({"memory-type": "CXL"})


def test_memory_figures_are_cut_to_integers_with_a_warning() -> None:
    machine = with_memory({"memory-type": "MEMORY_POOL", "remote-mem-bw": 3.7, "remote-mem-latency": 1.9})
    assert (machine.memory.bandwidth, machine.memory.latency_ns) == (3, 1)
    assert warnings(machine)["remote-mem-bw"] == "3.7 is cut to 3, as the reference does"


@pytest.mark.parametrize("keys", [{}, {"remote-mem-bw": 0}, {"remote-mem-bw": 0.5}])
def test_a_bandwidth_of_zero_means_no_transfer_time_with_a_warning(keys: dict[str, Any]) -> None:
    machine = with_memory({"memory-type": "MEMORY_POOL"} | keys)
    assert machine.memory.bandwidth == 0
    assert "a transfer takes only the latency" in warnings(machine)["remote-mem-bw"]


def test_without_remote_memory_its_figures_do_not_matter() -> None:
    machine = with_memory({"memory-type": "NO_MEMORY_EXPANSION"})
    assert not machine.warnings
    assert "remote-mem-bw" not in [notice.key for notice in machine.defaults]


def test_memory_per_node_needs_room_for_all_ranks() -> None:
    assert 'key "num-nodes" is missing' in memory_refusal(NODES | {"num-npus-per-node": 4})
    assert 'key "num-npus-per-node" is 0' in memory_refusal(NODES | {"num-nodes": 4, "num-npus-per-node": 0})
    text = memory_refusal(NODES | {"num-nodes": 3, "num-npus-per-node": 1})
    assert "makes room for 3 NPUs, the network has 4 (allowed: num-nodes x num-npus-per-node >= 4)" in text


def test_local_memory_keys_of_old_memory_files_are_accepted_with_warnings() -> None:
    machine = with_memory(
        {"memory-type": "NO_MEMORY_EXPANSION", "local-mem-latency": 0, "local-mem-bw": 4096}
    )
    assert list(warnings(machine)) == ["local-mem-latency", "local-mem-bw"]


def test_groups_keep_the_order_of_their_ranks() -> None:
    assert with_groups({"2": [3, 1], "1": [0, 1, 2, 3]}).groups == {"2": (3, 1), "1": (0, 1, 2, 3)}


def test_group_ids_may_be_integers_in_python() -> None:
    assert with_groups({7: (0, 1)}).groups == {"7": (0, 1)}


def test_groups_may_be_called_anything_and_numbers_have_one_spelling() -> None:
    groups = {"tensor parallel": [0], "-1": [1], "007": [2], "9" * 150: [3]}
    assert list(with_groups(groups).groups) == ["tensor parallel", "-1", "7", "9" * 150]


@pytest.mark.parametrize(
    ("groups", "cause"),
    [
        ({"0": [0, 1]}, 'group "0" cannot be defined: 0 always means all ranks'),
        ({"00": [0, 1]}, 'group "00" cannot be defined: 0 always means all ranks'),
        ({"": [0, 1]}, 'group "" has no name'),
        ({"1": [0], "01": [0]}, 'group "01" is given twice, in two spellings of one number'),
        ({"9" * 5000: [0]}, f'group "{"9" * 59}...: the name has 5000 characters'),
        ({"1": []}, 'key "1" is []'),
        ({"3": [0, 2, 0]}, 'key "3" is [0, 2, 0]: it has rank 0 twice'),
        (
            {"3": [0, 4]},
            'key "3" index 1 is 4: more than 3 (allowed: a list of different ranks, each an integer '
            "from 0 to 3)",
        ),
        ({1: [0], "1": [1]}, "two keys are the same"),
    ],
)
def test_an_impossible_group_is_refused_with_its_id(groups: Any, cause: str) -> None:
    assert groups_refusal(groups).startswith(f"<groups>: {cause}")


def test_the_word_empty_means_no_groups_and_other_paths_with_it_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_groups("empty").groups == {}
    path = tmp_path / "nonempty.json"
    path.write_text('{"1": [0, 1]}')
    assert with_groups(path).groups == {"1": (0, 1)}
