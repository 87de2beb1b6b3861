"""Golden cases: inputs of the reference and its results for them.

A case names its network, system, memory and group configuration as in the reference's files, and its
workload as `programs`: lists of nodes, each for "all" ranks or for a list of ranks and inclusive
ranges. A node is {"i": id, "t": type, "n": name, "d": data deps, "c": control deps, "us": microseconds,
"cpu": true | false | null (attribute not written), "a": attributes}; an attribute value "$x" means
`vars["x"][rank]`. Lists per rank in `expected` are run-length encoded: [[value, count], ...].

Workloads go through real trace bytes, with the wire type that the case gives each attribute, so that
every case also tests the decoder.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from et_sim.trace import CollectiveKind, Trace, Workload, decode
from et_sim.trace.schema import messages

DATA = Path(__file__).parent / "data" / "reference_2x.jsonl.xz"

MOST_MESSAGES = 5000  # of cases that are simulated several times, and interpreted, without `--deep`

NODE_TYPES = {
    "INVALID": 0,
    "META": 1,
    "LOAD": 2,
    "STORE": 3,
    "COMP": 4,
    "SEND": 5,
    "RECV": 6,
    "COLL": 7,
}
WIRE_KINDS = {
    "is_cpu_op": "bool_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "comm_priority": "int32_val",
    "pg_name": "string_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "tensor_loc": "uint32_val",
    "involved_dim": "bool_list",
    "inputs": "string_list",
    "outputs": "string_list",
}


@dataclass(frozen=True)
class Case:
    """One golden case, as read."""

    content: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.content["id"])

    @property
    def category(self) -> str:
        return str(self.content["category"])

    @property
    def backend(self) -> str:
        return str(self.content["backend"])

    @property
    def model(self) -> str:
        """Return et-sim's name of the network model."""
        return {"unaware": "analytical", "aware": "link"}[self.backend]

    @property
    def status(self) -> str:
        return str(self.content["expected"]["status"])

    @property
    def ranks(self) -> int:
        return math.prod(self.content["network"]["npus_count"])

    @property
    def nodes(self) -> int:
        """Return the number of nodes of all ranks."""
        programs = self.content["workload"]["programs"]
        return sum(len(program["nodes"]) * len(ranks_of(program["r"], self.ranks)) for program in programs)

    @property
    def system(self) -> dict[str, Any]:
        """Return the system description, with the reference's command-line flags as keys."""
        return {**self.content["system"], **(self.content.get("args") or {})}

    @property
    def machine(self) -> dict[str, Any]:
        """Return keyword arguments that describe the machine to `et_sim.simulate`."""
        return {
            "system": self.system,
            "network": self.content["network"],
            "memory": self.content["memory"],
            "groups": self.content["comm_groups"],
        }

    @property
    def algorithms(self) -> set[str]:
        """Return all names of algorithms in the system description."""
        lists = (v for k, v in self.content["system"].items() if k.endswith("-implementation"))
        return {name for names in lists for name in names}

    def workload(self) -> Workload:
        """Return the workload, read from encoded traces."""
        traces: list[Trace | None] = [None] * self.ranks
        shared: dict[bytes, Trace] = {}
        for rank, encoded in self.encoded_traces():
            if encoded not in shared:
                shared[encoded] = decode(encoded, source=f"{self.name}.{rank}.et")
            traces[rank] = shared[encoded]
        return Workload.of([trace for trace in traces if trace is not None], self.name)

    def encoded_traces(self) -> Iterator[tuple[int, bytes]]:
        """Yield each rank with the content of its file."""
        description = self.content["workload"]
        kinds = {**WIRE_KINDS, **(self.content.get("attr_enc") or {})}
        for program in description["programs"]:
            is_shared = '": "$' not in json.dumps(program["nodes"])  # no value is one of the rank
            encoded = b""
            for rank in ranks_of(program["r"], self.ranks):
                if not (is_shared and encoded):
                    encoded = _encode(program["nodes"], description.get("vars") or {}, rank, kinds)
                yield rank, encoded

    def write(self, folder: Path) -> list[str]:
        """Write everything as files, traces first, and return the arguments of `et-sim run`."""
        self.write_programs(folder)
        for rank, encoded in self.encoded_traces():
            (folder / f"trace.{rank}.et").write_bytes(encoded)
        arguments = [str(folder / "trace"), "--network-model", self.model]
        for part, content in self.machine.items():
            if content is not None:
                (folder / part).write_text(json.dumps(content))
                arguments += [f"--{part}", str(folder / part)]
        return arguments

    def write_programs(self, folder: Path) -> None:
        """Write the files of custom collectives, whose paths are relative to `folder`."""
        for prefix, workload in (self.content.get("extra_et") or {}).items():
            (folder / prefix).parent.mkdir(parents=True, exist_ok=True)
            for program in workload["programs"]:
                for rank in ranks_of(program["r"], workload.get("nranks", self.ranks)):
                    encoded = _encode(program["nodes"], workload.get("vars") or {}, rank, WIRE_KINDS)
                    (folder / f"{prefix}.{rank}.et").write_bytes(encoded)
        for path, text in (self.content.get("extra_files") or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)

    def expected_finish(self) -> list[int | None]:
        """Finish time of every rank."""
        return _unroll(self.content["expected"]["finish"])

    def expected_exposed(self) -> list[int | None]:
        """Return the exposed communication of every rank, unsigned 64 bits."""
        return _unroll(self.content["expected"]["exposed"])

    def expected_statistics(self) -> dict[str, list[int | None]]:
        """Return statistics lines of every rank, by the reference's names."""
        return {key: _unroll(value) for key, value in self.content["expected"].get("stats", {}).items()}

    def expected_nodes(self) -> dict[int, dict[int, list[int]]]:
        """Return [start, end] by rank and node id."""
        nodes: dict[int, dict[int, list[int]]] = {}
        for entry in self.content["expected"].get("nodes") or []:
            times = {node: [start, end] for node, start, end in entry["v"]}
            for rank in ranks_of(entry["r"], self.ranks):
                nodes[rank] = times
        return nodes


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every case of the data file."""
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        return tuple(Case(json.loads(line)) for line in lines)


def some(cases: Sequence[Any], step: int, *, deep_step: int = 1) -> list[Any]:
    """Return cases as parameters: every `step`th small one always runs, every `deep_step`th with `--deep`."""
    return _parameters(cases, _small(cases)[::step], cases[::deep_step])


def of_every_kind(
    cases: Sequence[Case],
    step: int,
    *,
    also_large: bool = False,
    deep_step: int = 1,
) -> list[Any]:
    """Return parameters as `some`, of every category on every network model, from the smallest on."""
    results: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(cases, key=_messages):
        results.setdefault((case.category, case.model), []).append(case)
    chosen, deep = (
        [case for kind in results.values() for case in kind[::each]] for each in (step, deep_step)
    )
    return _parameters(cases, chosen if also_large else _small(chosen), deep)


def _parameters(cases: Sequence[Any], chosen: Sequence[Any], deep: Sequence[Any]) -> list[Any]:
    """Return all cases, marked if they do not always run."""
    marks: dict[str, Any] = {_name(case): pytest.mark.deep for case in deep}
    marks |= {_name(case): () for case in chosen}
    return [
        pytest.param(case, id=_name(case), marks=marks.get(_name(case), pytest.mark.exhaustive))
        for case in cases
    ]


def _small(cases: Sequence[Any]) -> list[Any]:
    return [case for case in cases if _messages(case) <= MOST_MESSAGES]


def _messages(case: Any) -> int:
    """Return an estimate of the messages of all ranks: every collective as a ring in each dimension."""
    content = case.content if isinstance(case, Case) else case
    network, settings = content["network"], {**content["system"], **(content.get("args") or {})}
    sizes = network.get("npus_count") or network["units-count"]
    if isinstance(case, Case):
        collectives = case.nodes
    else:  # a layer per line
        collectives = math.prod(sizes) * case["workload"].count("\n") * settings.get("num-passes", 1)
    return int(collectives * settings.get("preferred-dataset-splits", 1) * 2 * sum(n - 1 for n in sizes))


def _name(case: Any) -> str:
    return case.name if isinstance(case, Case) else str(case["id"])


def nodes_of(result: Any, rank: int) -> dict[int, list[int]]:
    """Return [start, end] of one rank of a result, by node id."""
    plan, nodes = result.outcome.plan, result.outcome.nodes
    actor = plan.actors[plan.actor_of_rank[rank]]
    ids = result.workload.trace(rank).node_id.tolist()
    rows = nodes[actor.node_first : actor.node_first + len(ids)]
    starts, ends = np.asarray(rows["start_ns"]).tolist(), np.asarray(rows["end_ns"]).tolist()
    return {node: [start, end] for node, start, end in zip(ids, starts, ends, strict=True)}


def _encode(
    nodes: list[dict[str, Any]], variables: dict[str, Any], rank: int, kinds: dict[str, str]
) -> bytes:
    schema = messages()
    records = [schema.GlobalMetadata(version="0.0.4")]
    for content in nodes:
        node = schema.Node(
            id=content["i"],
            name=content.get("n", f"{content['t']}_{content['i']}"),
            type=NODE_TYPES[content["t"]],
            duration_micros=content.get("us", 0),
            data_deps=content.get("d", []),
            ctrl_deps=content.get("c", []),
        )
        if "inputs_values" in content:
            node.inputs.values = content["inputs_values"]
        attributes = dict(content.get("a", {}))
        if content.get("cpu", False) is not None:
            attributes.setdefault("is_cpu_op", content.get("cpu", False))
        for name, value in sorted(attributes.items()):
            if isinstance(value, str) and value.startswith("$"):
                value = variables[value[1:]][rank]
            if name == "comm_type":
                value = CollectiveKind[value].value if isinstance(value, str) else value
            _set(node.attr.add(name=name), kinds[name], value)
        records.append(node)
    return b"".join(_delimited(record.SerializeToString(deterministic=True)) for record in records)


def _set(attribute: Any, kind: str, value: Any) -> None:
    if kind.endswith("_list"):
        getattr(attribute, kind).values.extend(value)
    else:
        setattr(attribute, kind, value)


def _delimited(record: bytes) -> bytes:
    size, head = len(record), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + record


def ranks_of(spec: Any, ranks: int) -> list[int]:
    """Return the ranks of "all", or of a list of ranks and inclusive ranges."""
    if spec == "all":
        return list(range(ranks))
    spans = [part if isinstance(part, list) else [part, part] for part in spec]
    return [rank for first, last in spans for rank in range(first, last + 1)]


def _unroll(pairs: list[list[Any]]) -> list[Any]:
    return [value for value, count in pairs for _ in range(count)]
