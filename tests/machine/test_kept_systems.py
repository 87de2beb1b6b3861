"""Parts of machines that were read before are those of reading anew, with the same remarks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from et_sim.machine import read_machine
from et_sim.machine.kept_systems import KeptSystems
from et_sim.machine.presets import preset
from et_sim.machine.recognise import MachineFile
from et_sim.machine.sources import load


def files_of(machine: str) -> dict[str, dict[str, Any]]:
    """Return the files of a preset machine, with keys that are remarked on."""
    known = preset(machine)
    return {
        "system": {**copy.deepcopy(known.system), "local-mem-size": 1},
        "network": {**copy.deepcopy(known.network), "router-latency": 1},
    }


@pytest.mark.parametrize("machine", ["h100-dgx:16", "mi300x-node:8", "a100-quad:8"])
def test_a_machine_that_is_read_again_is_equal_and_has_the_same_remarks(machine: str) -> None:
    given, kept = files_of(machine), KeptSystems()
    network = load(given["network"], MachineFile.NETWORK)
    first, again = (read_machine(system=given["system"], network=network, systems=kept) for _ in range(2))
    alone = read_machine(**given)
    assert again.network is first.network
    for read in (first, again):
        assert read.network == alone.network
        assert repr(read.system) == repr(alone.system)
        assert read.warnings == alone.warnings
        assert read.defaults == alone.defaults
    assert any(notice.key == "router-latency" for notice in again.warnings)


def test_another_network_is_read_with_the_kept_keys_of_the_library() -> None:
    given, kept = files_of("h100-dgx:16"), KeptSystems()
    for rails in ("400Gbps", "100Gbps", "400Gbps"):
        network = {**given["network"], "bandwidth": ["450GB/s", rails]}
        read = read_machine(system=given["system"], network=network, systems=kept)
        alone = read_machine(system=given["system"], network=network)
        assert read.system.library == alone.system.library
        assert read.network == alone.network
        assert (read.warnings, read.defaults) == (alone.warnings, alone.defaults)


def test_a_system_of_other_values_is_read_anew() -> None:
    given, kept = files_of("h100-dgx:8"), KeptSystems()
    for delay in (10, 20, 10):
        system = {**given["system"], "endpoint-delay": delay}
        read = read_machine(system=system, network=given["network"], systems=kept)
        assert read.system.endpoint_delay_ns == delay


@pytest.mark.parametrize(
    ("part", "key", "values"),
    [("costs", "price-per-hour", (4, 4.0)), ("library", "name", ("nccl-2.30", "none"))],
)
def test_a_system_that_changes_in_place_is_read_with_its_new_values(
    part: str, key: str, values: tuple[Any, ...]
) -> None:
    given, kept = files_of("h100-dgx:16"), KeptSystems()
    for value in values:
        given["system"][part][key] = value
        read, alone = read_machine(**given, systems=kept), read_machine(**given)
        assert repr(read.system) == repr(alone.system)
        assert (read.configuration, read.inputs) == (alone.configuration, alone.inputs)


def test_a_network_of_the_same_values_is_read_once_and_anew_after_a_change() -> None:
    given, kept = files_of("h100-dgx:16"), KeptSystems()
    first = read_machine(**given, systems=kept).network
    assert read_machine(**copy.deepcopy(given), systems=kept).network is first
    given["network"]["latency"][1] = "700ns"
    assert read_machine(**given, systems=kept).network == read_machine(**given).network != first
