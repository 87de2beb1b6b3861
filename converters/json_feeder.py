"""The feeder's flavour: one object with the nodes in `workload_graph`, attributes as keys of a node.

Units are those of the reader it was written for: `runtime` in microseconds, sizes in bytes. That
reader ignores `ctrlDeps`; here they are control dependencies, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from converters.json_flat import Keys, flat_node
from converters.json_remarks import Remarks, who
from converters.json_values import UnfitError, about, add_attribute, shown
from et_sim.trace.schema import messages

NAME = "JSON workload_graph"
_GRAPH = "workload_graph"
_KEYS = Keys("Id", "Name", "NodeType", "runtime", "data_deps", "ctrlDeps")
# What describes the whole file goes to the trace's metadata.
_DESCRIPTION = {"workload_name": "string_val", "ngpus": "int64_val", "soc": "string_val"}


def recognises(first: dict[str, Any]) -> bool:
    """Whether an input that starts with this object is of this flavour."""
    return _GRAPH in first


def read(first: dict[str, Any], rest: Iterator[dict[str, Any]], remarks: Remarks) -> Iterator[Any]:
    """The metadata and the nodes."""
    remarks.sentences.append(("units", "runtime taken as microseconds, sizes as bytes"))
    remarks.note_unknown(first, {_GRAPH, *_DESCRIPTION}, "the file's own object")
    header = messages().GlobalMetadata()
    with about("the file's own object"):
        for key, member in _DESCRIPTION.items():
            if key in first:
                add_attribute(header, key, member, first[key])
    described = ", ".join(f"{key} {first[key]}" for key in _DESCRIPTION if key in first)
    if described:
        remarks.sentences.append(("describes", f"{described} (kept in the metadata)"))
    yield header
    if not isinstance(first[_GRAPH], list):
        raise UnfitError(f"{_GRAPH} is not a list", "give a list of nodes")
    known = _KEYS.known()
    for given in first[_GRAPH]:
        if not isinstance(given, dict):
            raise UnfitError(f"{_GRAPH} holds {shown(given)}", "give nodes as objects")
        with about(who(given.get("Id", "?"), given.get("Name"))):
            node = flat_node(given, _KEYS, known, remarks)
        yield node
    if next(rest, None) is not None:
        raise UnfitError("another object follows the graph", "give one file per rank")
