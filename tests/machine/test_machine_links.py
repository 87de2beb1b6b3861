"""Single links in the network file: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import MachineError
from et_sim.machine import read_machine
from et_sim.machine.model import AT_SWITCH, UnevenLink

GRID: dict[str, Any] = {
    "topology": ["Ring", "FullyConnected", "Switch"],
    "npus_count": [4, 3, 2],
    "bandwidth": [50.0, 40.0, 30.0],
    "latency": [500, 600, 700],
}


def links(*entries: Any) -> tuple[UnevenLink, ...]:
    return read_machine(system={}, network=GRID | {"links": list(entries)}).network.links


def refusal(entry: Any) -> str:
    with pytest.raises(MachineError) as caught:
        links({"dimension": 0, "from": 3, "to": 0, "latency": 1}, entry)
    return str(caught.value)


def test_what_is_not_given_is_as_in_the_dimension() -> None:
    assert links(
        {"dimension": 0, "from": 3, "to": 0, "bandwidth": "50GiB/s", "latency": "1us"},
        {"dimension": 1, "from": 9, "to": 1, "bandwidth": 20},
        {"dimension": 2, "from": 5, "to": "switch", "latency": 7},
        {"dimension": 2, "from": "switch", "to": 5, "latency": 8},
    ) == (
        UnevenLink(0, 3, 0, 50.0, 1000.0),
        UnevenLink(1, 9, 1, 20.0, 600.0),
        UnevenLink(2, 5, AT_SWITCH, 30.0, 7.0),
        UnevenLink(2, AT_SWITCH, 5, 30.0, 8.0),
    )


def test_links_are_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "network.yml"
    path.write_text(
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
        "links:\n  - { dimension: 0, from: 1, to: 2, bandwidth: 25, latency: 900 }\n",
        encoding="utf-8",
    )
    network = read_machine(system={}, network=path).network
    assert network.links == (UnevenLink(0, 1, 2, 25.0, 900.0),)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"dimension": 0, "from": 0, "to": 1}, "does not say how the link differs"),
        ({"from": 0, "to": 1, "latency": 1}, 'key "dimension" is missing'),
        ({"dimension": 0, "to": 1, "latency": 1}, 'key "from" is missing'),
        ({"dimension": 0, "from": 1, "latency": 1}, 'key "to" is missing'),
        ({"dimension": 0, "from": 0, "to": 1, "latencyy": 1}, "did you mean 'latency'?"),
        ({"dimension": 3, "from": 0, "to": 1, "latency": 1}, 'key "dimension" is 3, and the network has 3'),
        ({"dimension": -1, "from": 0, "to": 1, "latency": 1}, 'key "dimension" is -1'),
        ({"dimension": 0, "from": 0, "to": 2, "latency": 1}, "no link leads from 0 to 2 in dimension 0"),
        ({"dimension": 0, "from": 3, "to": 4, "latency": 1}, "no link leads from 3 to 4 in dimension 0"),
        ({"dimension": 0, "from": 1, "to": 1, "latency": 1}, "no link leads from 1 to 1"),
        ({"dimension": 0, "from": 0, "to": "switch", "latency": 1}, "which is a Ring"),
        ({"dimension": 1, "from": 0, "to": 1, "latency": 1}, "which is a FullyConnected"),
        ({"dimension": 2, "from": 0, "to": 12, "latency": 1}, 'the other one "switch"'),
        ({"dimension": 2, "from": "switch", "to": "switch", "latency": 1}, "no link leads"),
        ({"dimension": 0, "from": 24, "to": 1, "latency": 1}, 'key "from" is 24, and the network has 24'),
        ({"dimension": 0, "from": 0, "to": -1, "latency": 1}, 'key "to" is -1'),
        ({"dimension": 0, "from": 0, "to": True, "latency": 1}, 'key "to" is true'),
        ({"dimension": 0, "from": 0, "to": "hub", "latency": 1}, 'key "to" is "hub"'),
        ({"dimension": 0, "from": 0, "to": 1, "bandwidth": 0}, 'key "bandwidth" is 0'),
        ({"dimension": 0, "from": 0, "to": 1, "latency": -1}, 'key "latency" is -1'),
        ({"dimension": 0, "from": 3, "to": 0, "bandwidth": 1}, "the same link stands there twice"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_index(entry: Any, text: str) -> None:
    said = refusal(entry)
    assert said.startswith('<network>: "links" index 1: ')
    assert text in said


@pytest.mark.parametrize("value", [{"dimension": 0}, "0-1", [1], None])
def test_anything_but_a_list_of_objects_is_refused(value: Any) -> None:
    with pytest.raises(MachineError, match=r'key "links" is .* a list of objects'):
        read_machine(system={}, network=GRID | {"links": value})
