"""Decode a large trace: nodes per second on one core, and against the protobuf library.

    python benchmarks/decode.py [--nodes 200000] [--repeat 7]

The trace is made here: three dependencies and eight attributes per node, every name different.
The compiled decoder is timed from bytes in memory to a finished `Trace`, after one warm-up; the
protobuf library (whose parser is C too) from the same bytes to one `Node` object per record
(`parsing`), and with its fields and attributes read into Python values (`reading`), which is what
a reader built on it does.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from et_sim.trace import decode
from et_sim.trace.schema import messages


def make_trace(nodes: int) -> bytes:
    """Return the bytes of a trace file of `nodes` nodes."""
    schema = messages()
    choose = random.Random(1)
    records = [schema.GlobalMetadata(version="0.0.4").SerializeToString()]
    for number in range(nodes):
        node = schema.Node(
            id=number,
            name=f"layer{number // 12}.forward.op_{number}",
            duration_micros=choose.randrange(1, 5000),
        )
        far = (1, choose.randrange(1, 40), choose.randrange(1, 3000))
        node.data_deps.extend(max(0, number - distance) for distance in far if number)
        _add_attributes(node, number, choose)
        records.append(node.SerializeToString())
    return b"".join(part for record in records for part in (_varint(len(record)), record))


def _add_attributes(node: Any, number: int, choose: random.Random) -> None:
    add = node.attr.add
    add(name="is_cpu_op", bool_val=False)
    add(name="num_ops", int64_val=choose.randrange(1 << 40))
    add(name="tensor_size", uint64_val=choose.randrange(1 << 30))
    add(name="rf_id", int64_val=number)
    add(name="stream", int64_val=7)
    add(name="comm_priority", int32_val=0)
    if number % 5:
        node.type = 4
        add(name="op_type", string_val="GEMM")
        add(name="tid", int64_val=3)
    else:
        node.type = 7
        add(name="comm_type", int64_val=0)
        add(name="comm_size", int64_val=choose.randrange(1 << 30))


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def with_protobuf(content: bytes, *, read: bool) -> list[Any]:
    """Parse every record with the protobuf library, and perhaps read out what a simulator needs."""
    parse = messages().Node.FromString
    nodes: list[Any] = []
    pos = 0
    while pos < len(content):
        size = shift = 0
        while shift == 0 or content[pos - 1] > 127:
            size |= (content[pos] & 127) << shift
            shift += 7
            pos += 1
        node = parse(content[pos : pos + size])
        nodes.append(_read(node) if read else None)
        pos += size
    return nodes


def _read(node: Any) -> tuple[Any, ...]:
    attributes = {}
    for attribute in node.attr:
        attributes[attribute.name] = getattr(attribute, attribute.WhichOneof("value"))
    dependencies = (list(node.data_deps), list(node.ctrl_deps))
    return node.id, node.name, node.type, node.duration_micros, dependencies, attributes


def best_seconds(action: Any, repeat: int) -> float:
    """Return the shortest of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    content = make_trace(options.nodes)
    start = time.perf_counter()
    decode(content)
    first = time.perf_counter() - start
    ours = best_seconds(lambda: decode(content), options.repeat)
    few = max(2, options.repeat // 3)
    parsing = best_seconds(lambda: with_protobuf(content, read=False), few)
    reading = best_seconds(lambda: with_protobuf(content, read=True), few)
    print(f"trace                  {options.nodes} nodes, {len(content) / options.nodes:.0f} bytes each")
    print(f"first call             {first:.2f} s (loads or compiles the decoder)")
    for name, seconds in (("et-sim", ours), ("protobuf, parsing", parsing), ("protobuf, reading", reading)):
        rate, speed = options.nodes / seconds, len(content) / seconds / 1e6
        print(f"{name:<22} {rate:>11,.0f} nodes/s {speed:>5.0f} MB/s  {seconds / ours:5.1f}x our time")


if __name__ == "__main__":
    main()
