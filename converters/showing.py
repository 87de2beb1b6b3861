"""Display of a trace: one line per node with its attributes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct

from converters.json_lines import plain_value
from converters.records import EXPECTED_MEMBER
from et_sim.basics.units import exact_bytes, format_ns, plural
from et_sim.trace import Trace
from et_sim.trace.columns import NodeKind, collective_name, kind_name

_LONGEST_NAME = 48
_LONGEST_TEXT = 60
_DEPENDENCIES_SHOWN = 6
_KNOWN = frozenset(name for name, _ in EXPECTED_MEMBER)
_HEADINGS = ("id", "kind", "name", "duration")


class Widths(Struct, frozen=True):
    """The widths of the columns, which are fixed before the first line is written."""

    node_id: int
    kind: int
    name: int
    duration: int

    def row(self, cells: tuple[str, str, str, str], details: str) -> str:
        """Return one line of the table."""
        node_id, kind, name, duration = cells
        line = (
            f"{node_id:>{self.node_id}}  {kind:<{self.kind}}  {name:<{self.name}}"
            f"  {duration:>{self.duration}}  {details}"
        )
        return line.rstrip()


def table(trace: Trace, nodes: Iterator[Any]) -> Iterator[str]:
    """Yield the lines of these nodes of `trace`, under headings."""
    widths = _widths(trace)
    known = set(trace.node_id.tolist())
    yield widths.row(_HEADINGS, "details, dependencies")
    for node in nodes:
        cells = (str(node.id), kind_name(node.type), _quoted(node.name), _duration(node))
        parts = [*_details(node), *_dependencies(node, known)]
        yield widths.row(cells, "; ".join(parts))


def _duration(node: Any) -> str:
    """Return the recorded duration; the exact attribute has priority."""
    exact = next((plain_value(attr) for attr in node.attr if attr.name == "duration_ns"), None)
    if isinstance(exact, int):
        return format_ns(exact)
    return format_ns(1000 * node.duration_micros) if node.duration_micros else "-"


def _widths(trace: Trace) -> Widths:
    kinds = trace.kind_counts
    is_exact = trace.has("duration_ns")
    durations = {format_ns(1000 * span) for span in set(trace.duration_us[~is_exact].tolist())}
    durations |= {format_ns(span) for span in set(trace.duration_ns[is_exact].tolist())}
    return Widths(
        node_id=max(2, len(str(int(trace.node_id.max(initial=0))))),
        kind=max(4, *map(len, kinds), 4),
        name=max(4, *(len(_quoted(name)) for name in trace.names), 4),
        duration=max(8, *map(len, durations), 8),
    )


def _quoted(name: str) -> str:
    """Return the name as one word on one line."""
    text = json.dumps(name, ensure_ascii=False)
    return text if len(text) <= _LONGEST_NAME else f'{text[: _LONGEST_NAME - 2]}…"'


def _details(node: Any) -> Iterator[str]:
    """Yield the parts of a node's description, as far as it has attributes."""
    values: dict[str, Any] = {}
    others = 0
    for attribute in node.attr:
        if attribute.name in _KNOWN and attribute.name not in values:
            values[attribute.name] = plain_value(attribute)
        else:
            others += 1
    action = _action(values)
    if action:
        yield action
    yield from (f"{label} {_value(values[name])}" for name, label in _PLAIN if name in values)
    if values.get("is_cpu_op"):
        yield "on the CPU"
    if values.get("concurrent"):
        yield "concurrent"
    if node.inputs.values and node.type == NodeKind.METADATA:
        text = node.inputs.values
        yield text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    if others:
        yield plural(others, "other attribute")


_PLAIN = (
    ("num_ops", "operations"),
    ("comm_tag", "tag"),
    ("comm_priority", "priority"),
    ("involved_dim", "dimensions"),
)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(int(flag)) for flag in value)
    return f"{value:,}"


def _action(values: dict[str, Any]) -> str:
    """Return the operation of a node, such as `all_reduce 1 MiB in group 2` or `1 MiB to rank 3`."""
    words = []
    if "comm_type" in values:
        words.append(collective_name(values["comm_type"]))
    sizes = [values[name] for name in ("comm_size", "tensor_size") if name in values]
    words += [exact_bytes(size) for size in sizes]
    if "comm_split_sizes" in values:
        shares = str(values["comm_split_sizes"])
        shown = shares if len(shares) <= _LONGEST_TEXT else f"{shares[:_LONGEST_TEXT]}…"
        words.append(f"in shares of {shown} bytes")
    if "comm_src" in values:
        words.append(f"from rank {values['comm_src']}")
    if "comm_dst" in values:
        words.append(f"to rank {values['comm_dst']}")
    if values.get("pg_name"):
        words.append(f"in group {values['pg_name']}")
    return " ".join(words)


def _dependencies(node: Any, known: Collection[int]) -> Iterator[str]:
    for label, ids in (("after", node.data_deps), ("control after", node.ctrl_deps)):
        if not ids:
            continue
        shown = [
            f"{node_id}" if node_id in known else f"{node_id} (not in the file)"
            for node_id in ids[:_DEPENDENCIES_SHOWN]
        ]
        more = len(ids) - len(shown)
        yield f"{label} {', '.join(shown)}" + (f" and {more:,} more" if more else "")
