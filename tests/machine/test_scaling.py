"""A machine of which one figure is changed is otherwise the same machine."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from et_sim.machine import read_machine
from et_sim.machine.scaling import figures

GRID = {"topology": ["Ring", "Switch"], "npus_count": [2, 4], "bandwidth": [50, 25], "latency": [500, 700]}
SYSTEM = {
    "profile": "corrected",
    "all-reduce-implementation": ["ring", "ring"],
    "all-gather-implementation": ["ring", "ring"],
    "reduce-scatter-implementation": ["ring", "ring"],
    "all-to-all-implementation": ["direct", "direct"],
}


@pytest.mark.parametrize(
    "added", [{}, {"protocol": {"preset": "roce"}}, {"credits": {"flit": 64, "packet": 1000}}]
)
def test_a_network_keeps_all_but_the_figure_that_is_changed(added: dict[str, Any]) -> None:
    machine = read_machine(system=SYSTEM, network=GRID | added)
    of_links = {name: scale for name, scale in figures(machine).items() if " of dimension" in name}
    assert len(of_links) >= 4
    for scale in of_links.values():
        scaled = scale(2.0)
        assert scaled is not None
        before, after = (structs.asdict(each.network) for each in (machine, scaled[0]))
        assert before.pop("fabric") != after.pop("fabric")
        assert before.pop("grid").dimensions[0].npus == after.pop("grid").dimensions[0].npus
        assert before == after


def test_loggops_has_no_links_whose_figures_could_change() -> None:
    constants = {"npus": 8, "L": 1000, "o": 200, "g": 5, "G": 0.04, "O": 0, "S": 65535}
    machine = read_machine(system={"profile": "corrected"}, network={"loggops": constants})
    assert not [name for name in figures(machine) if "dimension" in name]
    for scale in figures(machine).values():
        scaled = scale(2.0)
        assert scaled is not None
        assert scaled[0].network == machine.network
