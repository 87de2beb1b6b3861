"""The network file: four lists of equal length, each entry within its range; and single links that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import MachineError
from et_sim.machine import Dimension, DimensionShape, Network, read_machine
from et_sim.machine.model import AT_SWITCH, UnevenLink

GRID: dict[str, Any] = {
    "topology": ["Ring", "Switch"],
    "npus_count": [4, 2],
    "bandwidth": [50.0, 25],
    "latency": [936.25, 0],
}


def network(**changes: Any) -> Network:
    return read_machine(system={}, network=GRID | changes).network


def refusal(**changes: Any) -> str:
    with pytest.raises(MachineError) as caught:
        network(**changes)
    return str(caught.value)


def from_text(text: str, folder: Path) -> Network:
    path = folder / "network.yml"
    path.write_text(text, encoding="utf-8")
    return read_machine(system={}, network=path).network


def test_dimensions_come_in_order() -> None:
    ring, switch = (
        Dimension(DimensionShape.RING, 4, 50.0, 936.25),
        Dimension(DimensionShape.SWITCH, 2, 25.0, 0.0),
    )
    assert network() == Network.of_dimensions((ring, switch))


def test_a_bare_bandwidth_is_in_units_of_two_to_the_thirty() -> None:
    assert network().fabric.dimensions[0].bytes_per_ns == 53.6870912


def test_bandwidth_and_latency_may_have_units() -> None:
    first, second = network(bandwidth=["400Gbps", "50GiB/s"], latency=["1.5us", "7ns"]).fabric.dimensions
    assert (first.bytes_per_ns, second.bandwidth) == (50.0, 50.0)
    assert (first.latency_ns, second.latency_ns) == (1500.0, 7.0)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("topology", "Torus", "Ring, FullyConnected or Switch"),
        ("topology", "ring", "did you mean 'Ring'? allowed: Ring, FullyConnected or Switch"),
        ("topology", 1, "Ring, FullyConnected or Switch"),
        *(
            ("npus_count", bad, "an integer >= 1")
            for bad in (0, -2, 4.5, True, "4", None, float("nan"), 2**60)
        ),
        *(
            ("bandwidth", bad, "a number > 0")
            for bad in (0, -1, True, "fast", "0GB/s", None, float("nan"), [50])
        ),
        *(("bandwidth", bad, "a number > 0") for bad in (float("inf"), float("nan"), 1e300, "1e200GB/s")),
        *(("latency", bad, "a number >= 0") for bad in (-1, False, "soon", None, float("inf"), float("nan"))),
    ],
)
def test_a_wrong_entry_is_refused_with_key_index_and_range(key: str, value: Any, allowed: str) -> None:
    text = refusal(**{key: [GRID[key][0], value]})
    assert text.startswith(f'<network>: key "{key}" index 1 is ')
    assert allowed in text


@pytest.mark.parametrize("key", ["topology", "npus_count", "bandwidth", "latency"])
def test_a_missing_list_a_bare_value_and_an_empty_list_are_refused(key: str) -> None:
    with pytest.raises(MachineError, match=f'key "{key}" is missing .*a list with one entry per dimension'):
        read_machine(system={}, network={name: value for name, value in GRID.items() if name != key})
    bare = GRID[key][0]
    assert (
        f"one value instead of a list (write it as a list with one entry per dimension: {key}: [ {bare} ])"
        in (refusal(**{key: bare}))
    )
    assert f'key "{key}" is []' in refusal(**{key: []})


@pytest.mark.parametrize("key", ["npus_count", "bandwidth", "latency"])
def test_lists_of_different_length_are_refused_with_both_lengths(key: str) -> None:
    assert f'key "{key}" has 1 entry, "topology" has 2' in refusal(**{key: GRID[key][:1]})


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    text = refusal(npu_count=[4, 2])
    assert text == "<network>: key \"npu_count\" is not known (did you mean 'npus_count'?)"


def test_a_dimension_of_one_npu_is_legal_with_a_warning() -> None:
    machine = read_machine(system={}, network=GRID | {"npus_count": [4, 1]})
    assert machine.network.ranks == 4
    assert [(notice.key, notice.text[:12]) for notice in machine.warnings] == [("npus_count", "index 1 is 1")]


def test_more_npus_than_rank_ids_are_refused() -> None:
    assert "allowed: at most 2147483647" in refusal(npus_count=[2**20, 2**20])


def test_json_content_and_comments_and_scientific_notation_are_yaml(tmp_path: Path) -> None:
    json_text = '{"topology": ["Ring"], "npus_count": [4], "bandwidth": [5e1], "latency": [0.5]}'
    yaml_text = "topology: [ 'Ring' ]  # wired\nnpus_count:\n- 4\nbandwidth: [ \"5e1\" ]\nlatency: [ .5 ]\n"
    assert from_text(json_text, tmp_path) == from_text(yaml_text, tmp_path)


@pytest.mark.parametrize("entry", ["1:30", "0x10", "010", "1_0", "yes", "true", "~", "[4]"])
def test_spellings_on_which_yaml_readers_differ_are_no_numbers(entry: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match='key "npus_count" index 0 is'):
        from_text(f"topology: [Ring]\nnpus_count: [{entry}]\nbandwidth: [50]\nlatency: [1]\n", tmp_path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "topology: [Ring\n",
            "line 2, column 1: not valid YAML: did not find expected ',' or ']' (correct it there)",
        ),
        ("topology: [Ring]\n bandwidth: [1]\n", "line 2, column "),
        ("topology: [Ring]\n---\ntopology: [Ring]\n", "line 2, column "),
        ("topology: [\x00]\n", "not valid YAML"),
        ("topology: [Ring]\ntopology: [Switch]\n", 'line 2: key "topology" is given more than once'),
        ("? [a, b]\n: 1\n", "line 1: a key is not a plain text"),
        ("topology: &x [*x]\n", "the content is nested too deeply"),
        ("[" * 100_000, "the content is nested too deeply"),
        ("- Ring\n", "the network file holds a list at its top level"),
        ("Ring\n", "the network file holds a text at its top level"),
        (
            "ENABLE_QCN 1\nCC_MODE 12\n",
            "this is ns-3's key file, not a network file (name it in a network file: protocol: {",
        ),
        ("", "the network file is empty"),
        ("# nothing\n", "the network file is empty"),
    ],
)
def test_unreadable_yaml_is_refused_with_its_place(text: str, cause: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        from_text(text, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'network.yml'}: {cause}")


def test_the_pure_python_yaml_parser_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "topology: [ Ring, Switch ]\nnpus_count: [4, 2]\nbandwidth: [50.0, 25]\nlatency: [936.25, 0]\n"
    expected = from_text(text, tmp_path)
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    assert from_text(text, tmp_path) == expected == network()
    with pytest.raises(MachineError, match="line 2, column"):
        from_text("topology: [Ring\n", tmp_path)


THREE: dict[str, Any] = {
    "topology": ["Ring", "FullyConnected", "Switch"],
    "npus_count": [4, 3, 2],
    "bandwidth": [50.0, 40.0, 30.0],
    "latency": [500, 600, 700],
}


def links(*entries: Any) -> tuple[UnevenLink, ...]:
    return read_machine(system={}, network=THREE | {"links": list(entries)}).network.links


def test_missing_figures_of_a_link_are_those_of_the_dimension() -> None:
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


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"dimension": 0, "from": 0, "to": 1}, "has neither a bandwidth nor a latency"),
        ({"dimension": 0, "from": 0, "to": 1, "latencyy": 1}, "did you mean 'latency'?"),
        ({"dimension": 3, "from": 0, "to": 1, "latency": 1}, 'key "dimension" is 3, and the network has 3'),
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
        ({"dimension": 0, "from": 3, "to": 0, "bandwidth": 1}, "the link is listed twice"),
    ],
)
def test_a_wrong_link_is_refused_with_its_index(entry: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        links({"dimension": 0, "from": 3, "to": 0, "latency": 1}, entry)
    output = str(caught.value)
    assert output.startswith('<network>: "links" index 1: ')
    assert text in output
