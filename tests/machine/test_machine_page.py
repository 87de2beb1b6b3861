"""The users' page on configuration files is complete, and its examples can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from et_sim.machine import read_machine, read_network_alone
from et_sim.machine.network_file import NETWORK_KEYS
from et_sim.machine.remote_memory import MEMORY_KEYS
from et_sim.machine.system_file import SYSTEM_KEYS
from et_sim.reference_page import configuration_text


@pytest.mark.parametrize("key", [*SYSTEM_KEYS, *NETWORK_KEYS, *MEMORY_KEYS])
def test_every_key_has_its_row(key: object) -> None:
    assert f"\n| `{getattr(key, 'name')}` | " in configuration_text()  # noqa: B009


def test_the_examples_describe_one_machine_without_warnings(tmp_path: Path) -> None:
    blocks = re.findall(r"```(?:yaml|json)\n(.*?)```", configuration_text(), re.DOTALL)
    network = tmp_path / "network.yml"
    network.write_text(blocks[0], encoding="utf-8")
    loggops = tmp_path / "loggops.yml"
    loggops.write_text(blocks[1], encoding="utf-8")
    assert read_network_alone(str(loggops)).loggops is not None
    system, memory, groups = (json.loads(block) for block in blocks[2:])
    machine = read_machine(system=system, network=network, memory=memory, groups=groups)
    assert machine.network.ranks == 8
    assert not machine.warnings
