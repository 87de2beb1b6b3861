"""XPlane profiles for tests: a plain reader of protobuf's wire, and a writer of small profiles with HLO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from et_sim.basics.protobuf_fields import first_varint, message, number, text

FLOAT, BFLOAT16 = 11, 16


def fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field."""
    at = 0
    while at < len(content):
        tag, size = first_varint(content[at : at + 10])
        at += size
        if tag & 7 == 0:
            value, size = first_varint(content[at : at + 10])
            at += size
        else:
            size = 8
            if tag & 7 == 2:
                size, length = first_varint(content[at : at + 10])
                at += length
            value, at = content[at : at + size], at + size
        yield tag >> 3, value


def kernel_times(content: bytes) -> dict[str, dict[int, int]]:
    """Return the picoseconds of all events of each stream of each device."""
    sums: dict[str, dict[int, int]] = {}
    for place, plane in fields(content):
        named = [value.decode() for at, value in fields(plane) if at == 2] if place == 1 else []
        if not named or not named[0].startswith("/device:GPU"):
            continue
        streams: dict[int, int] = defaultdict(int)
        for at, line in fields(plane):
            if at == 3:
                stream = next(value for inner, value in fields(line) if inner == 1)
                events = [dict(fields(value)) for inner, value in fields(line) if inner == 4]
                streams[stream] += sum(event.get(3, 0) for event in events)
        if streams:
            sums[named[0]] = dict(streams)
    return sums


def shape(kind: int, *extents: int) -> bytes:
    """Return the fields of an array's shape."""
    return number(2, kind) + b"".join(number(3, extent) for extent in extents)


def instruction(
    name: str, opcode: str, of: bytes, own: int, operands: Sequence[int] = (), *more: bytes
) -> bytes:
    """Return an instruction of HLO."""
    parts = (text(1, name), text(2, opcode), message(3, of), number(35, own))
    return message(2, *parts, *(number(36, operand) for operand in operands), *more)


def groups(*listed: Sequence[int]) -> bytes:
    """Return the groups of a collective, each with its numbers."""
    return b"".join(message(49, *(number(1, one) for one in group)) for group in listed)


def regular_groups(count: int, size: int, dimensions: Sequence[int], order: Sequence[int]) -> bytes:
    """Return groups as numbers in order, reshaped and transposed."""
    lists = (*(number(3, one) for one in dimensions), *(number(4, one) for one in order))
    return message(87, message(2, number(1, count), number(2, size), *lists))


def module(computations: Sequence[Sequence[bytes]], assigned: Sequence[Sequence[int]]) -> bytes:
    """Return a module; `assigned` has the devices of each partition."""
    bodies = (message(3, text(1, f"c{at}"), *body, number(5, at)) for at, body in enumerate(computations, 1))
    devices = (message(3, *(number(1, device) for device in part)) for part in assigned)
    sizes = number(1, len(assigned[0])) + number(2, len(assigned))
    return message(1, text(1, "step"), *bodies, message(15, sizes, *devices))


def profile(
    devices: Mapping[str, Mapping[str, Sequence[tuple[str, int, int]]]], hlo: bytes, program: int = 7
) -> bytes:
    """Return a profile: of each device and line, events as (instruction, start, length), in ns."""
    about = message(
        2, number(1, program), text(2, f"step({program})"), message(5, number(1, 1), message(6, hlo))
    )
    planes = [message(1, text(2, "/host:metadata"), message(4, number(1, program), about))]
    for device, lines in devices.items():
        names = sorted({name for events in lines.values() for name, _, _ in events})
        metadata = [
            message(4, number(1, at), message(2, number(1, at), text(2, f"%{name} = f32[] op()")))
            for at, name in enumerate(names, 1)
        ]
        stats = [
            message(5, number(1, at), message(2, number(1, at), text(2, name)))
            for at, name in enumerate(("program_id", "hlo_op"), 1)
        ]
        bodies = []
        for at, (line, events) in enumerate(lines.items(), 1):
            written = [
                message(
                    4,
                    number(1, names.index(name) + 1),
                    number(2, start * 1000),
                    number(3, length * 1000),
                    message(4, number(1, 1), number(3, program)),
                    message(4, number(1, 2), text(5, name)),
                )
                for name, start, length in events
            ]
            bodies.append(message(3, number(1, at), text(2, line), number(3, 1000), *written))
        planes.append(message(1, text(2, device), *bodies, *metadata, *stats))
    return b"".join(planes)


ASSIGNED = [[0], [1], [2], [3]]  # one replica of four partitions
BODY = [
    instruction("x", "parameter", shape(FLOAT, 256), 1),
    instruction(
        "ar.1", "all-reduce", shape(FLOAT, 256), 2, (1,), groups((0, 1), (2, 3)), number(26, 1), number(71, 1)
    ),
    instruction("y", "parameter", shape(BFLOAT16, 2, 8), 3),
    instruction(
        "ag-start.2", "all-gather-start", shape(BFLOAT16, 4, 8), 4, (3,),
        regular_groups(2, 2, (2, 2), (1, 0)), number(26, 2), number(71, 1),
    ),
    instruction("rs.3", "async-start", shape(FLOAT, 64), 5, (1,), number(38, 1)),
]  # fmt: skip
INNER = [
    instruction(
        "i", "reduce-scatter", shape(FLOAT, 64), 1, (), groups((0, 1, 2, 3)), number(71, 1), number(26, 3)
    )
]
HLO = module([INNER, BODY], ASSIGNED)


ON_GPU = {
    "Stream #4(Kernel)": [("x", 0, 10), ("ar.1", 100, 50)],
    "Stream #9(Kernel)": [("ag-start.2", 10, 20), ("rs.3", 200, 30)],
}


def small_profile() -> bytes:
    """Return a profile of four devices with three collectives."""
    return profile({f"/device:GPU:{device}": ON_GPU for device in range(4)}, HLO)
