"""Reading of any input ends in a machine or in an error with its place and a sentence."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from machines import RING_4

from et_sim.basics.errors import MachineError
from et_sim.machine import DimensionShape, read_machine, texts
from et_sim.machine.network_file import NETWORK_KEYS
from et_sim.machine.remote_memory import MEMORY_KEYS
from et_sim.machine.system_file import SYSTEM_KEYS
from et_sim.machine.texts import parse_json, parse_yaml

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 20),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["ring", "direct4", "LIFO", "Ring", "MEMORY_POOL", "50GB/s"]),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)
)


def files(keys: tuple[Any, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([key.name for key in keys]), VALUES, max_size=4)


@given(
    files(SYSTEM_KEYS),
    files(NETWORK_KEYS),
    st.none() | files(MEMORY_KEYS),
    st.none() | st.dictionaries(SCALARS, VALUES),
)
def test_any_content_is_read_or_refused(system: Any, network: Any, memory: Any, groups: Any) -> None:
    for given_parts in (
        {"system": system, "network": RING_4},
        {"system": {}, "network": RING_4 | network},
        {"system": {}, "network": RING_4, "memory": memory},
        {"system": {}, "network": RING_4, "groups": groups},
    ):
        with contextlib.suppress(MachineError):
            read_machine(**given_parts)


@given(st.text(max_size=40) | st.text("[]{}:,-&*!|>'\"#%@ \na1.", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_json, parse_yaml):
        with contextlib.suppress(MachineError):
            parse(text, "file")


DIMENSIONS = st.lists(
    st.tuples(
        st.sampled_from([shape.value for shape in DimensionShape]),
        st.integers(1, 64),
        st.floats(1e-3, 1e6),
        st.floats(0, 1e6),
    ),
    min_size=1,
    max_size=4,
)


@given(DIMENSIONS)
def test_a_network_written_by_any_writer_reads_back_exactly(
    tmp_path_factory: Any, dimensions: list[Any]
) -> None:
    shapes, counts, bandwidths, latencies = (list(column) for column in zip(*dimensions, strict=True))
    content = {"topology": shapes, "npus_count": counts, "bandwidth": bandwidths, "latency": latencies}
    path: Path = tmp_path_factory.getbasetemp() / "network.yml"
    for text in (
        json.dumps(content),
        yaml.safe_dump(content),
        yaml.safe_dump(content, default_flow_style=True),
    ):
        path.write_text(text, encoding="utf-8")
        network = read_machine(system={}, network=path).network
        read_back = [(d.shape.value, d.npus, d.bandwidth, d.latency_ns) for d in network.fabric.dimensions]
        assert read_back == dimensions


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.text('0123456789.eE+-:#&*!%@"\\ \x7fNaInfity~', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=4), st.sampled_from([None, 2, "\t"]))
def test_yaml_that_is_json_has_the_value_of_the_yaml_library(content: dict[str, Any], indent: Any) -> None:
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    results = []
    for is_json in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_json:
                patch.setattr(texts, "_may_be_json", lambda _: False)
            try:
                results.append(repr(parse_yaml(text, "file")))  # in which 1, 1.0 and True differ
            except MachineError as error:
                results.append(str(error))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "text", ['{"a"\n : 1}', '{"a" \n\n:1}', f'{{"{"k" * 1100}": 1}}', f'{{"a"{" " * 1100}: 1}}']
)
def test_json_that_the_yaml_library_refuses_is_refused(text: str) -> None:
    with pytest.raises(MachineError, match="not valid YAML"):
        parse_yaml(text, "file")


@pytest.mark.parametrize("depth", [49, 50, 51, 200])
def test_json_is_as_deep_as_other_yaml_may_be(depth: int) -> None:
    nested = '{"a": ' * depth + "1" + "}" * depth
    plain = nested.replace('"', "")
    outcomes = []
    for text in (nested, plain):
        try:
            outcomes.append(repr(parse_yaml(text, "file")))
        except MachineError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_a_repeated_key_of_json_in_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(MachineError, match=r"file: line 2: key \"a\" is given more than once"):
        parse_yaml('{"a": 1,\n"a": 2}', "file")
