"""The Chakra flavour equals the output of Chakra's own text converter."""

from __future__ import annotations

import tarfile
from typing import Any

import pytest
from golden_1x import DATA, records

from converters.layers.chakra import chakra_file, chakra_graph
from converters.records import parse, split
from et_sim.basics.errors import InputError
from et_sim.layerfile import parse_layer_file
from et_sim.trace.schema import ENUMS

TYPES = {number: name for name, number in ENUMS["NodeType"]}
CASES = records("chakra_text.jsonl.xz")


def described(record: Any) -> dict[str, Any]:
    """Return a node as the golden data describes it: absent and zero fields are left out."""
    results = {"id": record.id, "name": record.name, "type": TYPES[record.type]}
    if record.duration_micros:
        results["duration_micros"] = record.duration_micros
    if record.data_deps:
        results["data_deps"] = list(record.data_deps)
    if record.attr:
        members = {attr.name: attr.WhichOneof("value") for attr in record.attr}
        results["attr"] = {attr.name: getattr(attr, members[attr.name]) for attr in record.attr}
        results["attr_type"] = members
    return results


@pytest.mark.parametrize("case", [case for case in CASES if "npu0" in case], ids=lambda case: case["id"])
def test_nodes_match_chakras_converter(case: dict[str, Any]) -> None:
    text = case["workload"]
    nodes = chakra_graph(parse_layer_file(text, case["id"]), case["num_passes"]).nodes
    metadata, *first = parse(split(chakra_file(nodes, 0, text)), "rank 0")
    assert [described(record) for record in first] == case["npu0"]
    assert {attr.name: attr.string_val for attr in metadata.attr} == {
        **case["metadata_attr"],
        "input_file": text,
    }
    _, *second = parse(split(chakra_file(nodes, 1, text)), "rank 1")
    assert second[0].id == case["npu1_first_id"]
    shift = case["npu1_equals_npu0_shifted_by"]
    for line, other in zip(first, second, strict=True):
        other.id -= shift
        other.data_deps[:] = [node - shift for node in other.data_deps]
        assert line == other


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: case["id"])
def test_keywords_that_chakras_converter_refuses_are_refused(case: dict[str, Any]) -> None:
    text = case["workload"]
    keyword = text.split()[0]
    if keyword == "HYBRID_CUSTOMIZED":  # theirs looks at the keyword before it looks at layers
        text = "".join(
            f"{line}\n" if len(line.split()) < 12 else f"{line} DATA\n" for line in text.splitlines()
        )
    with pytest.raises(InputError, match=f"Chakra's text converter does not support {keyword} "):
        chakra_graph(parse_layer_file(text, case["id"]), 1)


def test_files_of_eight_ranks_are_equal_to_the_byte() -> None:
    compared = 0
    with tarfile.open(DATA / "chakra_text_files.tar.xz") as archive:
        for member in archive:
            content = archive.extractfile(member).read()  # type: ignore[union-attr]
            name, passes, rank, _ = member.name.split(".")
            metadata, *_ = parse(split(content), member.name)
            text = next(attr.string_val for attr in metadata.attr if attr.name == "input_file")
            nodes = chakra_graph(parse_layer_file(text, name), int(passes.removeprefix("p"))).nodes
            assert chakra_file(nodes, int(rank), text) == content, member.name
            compared += 1
    assert compared == 28
