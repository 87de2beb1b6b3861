"""Collectives of a compiled program (HLO): operation, sizes, and the devices that take part.

Groups are listed, or numbers in order that are reshaped and transposed, or axes of a mesh; versions of XLA
differ. They count replicas, partitions, or devices, which channel and flag of the instruction decide, as
XLA states; the assignment of the module turns them into devices. An instruction that starts a computation of
its own stands for the collective in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from converters.recordings.xplane.schema import message_class

# Opcodes, and the words of PyTorch for them.
OPERATIONS = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reducescatter",
    "all-to-all": "alltoall",
    "ragged-all-to-all": "alltoall",
    "collective-broadcast": "broadcast",
}
FLAGGED = ("all-reduce", "all-gather", "reduce-scatter")  # those that may count devices
# Types of elements: name in PyTorch and bytes.
TYPES = {
    1: ("Bool", 1),
    2: ("Char", 1),
    3: ("Short", 2),
    4: ("Int", 4),
    5: ("Long", 8),
    6: ("Byte", 1),
    7: ("UInt16", 2),
    8: ("UInt32", 4),
    9: ("UInt64", 8),
    10: ("Half", 2),
    11: ("Float", 4),
    12: ("Double", 8),
    15: ("ComplexFloat", 8),
    16: ("BFloat16", 2),
    18: ("ComplexDouble", 16),
    **dict.fromkeys((19, 20, 23, 24, 25, 28, 29, 33), ("Byte", 1)),
}
BYTE = ("Byte", 1)
MOST_DEVICES = 1 << 20
MOST_AXES = 30  # of an array
MOST_ELEMENTS = 1 << 62


class HloCollective(Struct, frozen=True):
    """A collective instruction; `groups` has the devices of each group, and is empty for all devices."""

    operation: str
    in_bytes: int
    out_bytes: int
    datatype: tuple[str, int]
    groups: tuple[tuple[int, ...], ...]
    is_start: bool  # the instruction starts it, and another one waits for it

    def arguments(self, device: int, devices: int) -> dict[str, Any]:
        """Return what Kineto writes about the collective on a device, one of so many."""
        everyone = tuple(range(devices))
        members = next((group for group in self.groups if device in group), () if self.groups else everyone)
        name, each = self.datatype
        size = len(members) or devices
        return {
            "Collective name": self.operation,
            "dtype": name,
            "In msg nelems": self.in_bytes // each,
            "Out msg nelems": self.out_bytes // each,
            "Group size": size,
            "Process Group Ranks": str(list(members)),
        }


class HloProgram(Struct, frozen=True):
    """The collectives of a module by name of instruction, and the number of devices."""

    devices: int
    collectives: dict[str, HloCollective]


def read_program(content: bytes) -> HloProgram | None:
    """Return the collectives of a module; None if it cannot be read."""
    from google.protobuf.message import DecodeError

    try:
        module = message_class("Hlo").FromString(content).module
    except DecodeError:
        return None
    assigned = [list(part.devices) for part in module.devices.of_partition]
    devices = sum(map(len, assigned))
    if devices > MOST_DEVICES or len({len(part) for part in assigned}) > 1:
        return None
    found = {}
    inside = {computation.id: computation for computation in module.computations}
    for computation in module.computations:
        of_id = {instruction.id: instruction for instruction in computation.instructions}
        for instruction in computation.instructions:
            chosen, operands = instruction, [of_id.get(number) for number in instruction.operand_ids]
            if instruction.opcode == "async-start":
                chosen = next(_within(inside, instruction), instruction)
            operation = OPERATIONS.get(chosen.opcode.removesuffix("-start"))
            if operation is not None:
                shapes = [operand.shape for operand in operands if operand is not None]
                is_start = instruction.opcode.endswith("-start")
                found[instruction.name] = _collective(operation, chosen, shapes, assigned, is_start)
    return HloProgram(devices, found)


def _within(inside: dict[int, Any], instruction: Any) -> Iterator[Any]:
    """Yield the collectives in the computation that an instruction starts."""
    for number in instruction.called_ids:
        computation = inside.get(number)
        if computation is not None:
            yield from (other for other in computation.instructions if other.opcode in OPERATIONS)


def _collective(
    operation: str, instruction: Any, operands: list[Any], assigned: list[list[int]], is_start: bool
) -> HloCollective:
    parts = [part for shape in operands for part in _arrays(shape)]
    own = sum(size for _, size in parts)
    groups = _groups(instruction, assigned)
    members = len(groups[0]) if groups else max(sum(map(len, assigned)), 1)
    kinds = {kind for kind, _ in parts}
    whole = {"allgather": own * members, "reducescatter": own // members}.get(operation, own)
    datatype = TYPES.get(kinds.pop(), BYTE) if len(kinds) == 1 else BYTE
    return HloCollective(operation, own, whole, datatype, groups, is_start)


def _arrays(shape: Any) -> Iterator[tuple[int, int]]:
    """Yield the type and the bytes of each array of a shape."""
    pending = [shape]
    while pending:
        one = pending.pop()
        pending.extend(one.parts)
        if not one.parts and one.element_type in TYPES:
            size = math.prod(max(extent, 0) for extent in one.dimensions) * TYPES[one.element_type][1]
            yield one.element_type, min(size, MOST_ELEMENTS)


def _groups(instruction: Any, assigned: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the devices of each group."""
    listed = [list(group.ids) for group in instruction.groups or instruction.list.groups]
    listed = listed or _regular(instruction.list.iota) or _regular(instruction.iota)
    listed = listed or _along_axes(instruction.axes)
    partitions = len(assigned)
    replicas = len(assigned[0]) if assigned else 0
    if not listed:
        return ()
    places: list[list[tuple[int, int]]]  # of each group, as (replica, partition)
    if instruction.are_devices and partitions:
        places = [[divmod(number, partitions) for number in group] for group in listed]
    elif instruction.channel_id > 0 and instruction.opcode.removesuffix("-start") not in FLAGGED:
        places = [[(at, number) for number in group] for group in listed for at in range(replicas)]
    elif instruction.channel_id > 0:
        places = [[(number, part) for number in group for part in range(partitions)] for group in listed]
    else:
        places = [[(number, part) for number in group] for group in listed for part in range(partitions)]
    try:
        return tuple(tuple(assigned[part][replica] for replica, part in group) for group in places)
    except IndexError:
        return ()


def _along_axes(given: Any) -> list[list[int]]:
    """Return the groups of devices that differ along some axes of a mesh, or along parts of axes."""
    import numpy as np

    sizes = [axis.size for axis in given.mesh.axes]
    is_sound = 0 < len(sizes) <= MOST_AXES and min(sizes) > 0
    devices = _in_order(given.mesh, math.prod(sizes) if is_sound else 0)
    if devices is None or not given.axes:
        return []
    places = np.unravel_index(np.arange(len(devices)), sizes)
    rest = [np.array(place) for place in places]
    within = np.zeros(len(devices), np.int64)
    for reference in given.axes:
        if not 0 <= reference.axis < len(sizes):
            return []
        whole = sizes[reference.axis]
        size = reference.part.size or whole
        stride, uneven = divmod(whole, (reference.part.before or 1) * size)
        if uneven or not stride:
            return []
        digit = places[reference.axis] // stride % size
        rest[reference.axis] = rest[reference.axis] - digit * stride
        within = within * size + digit
    group = np.ravel_multi_index(rest, sizes)
    order = np.lexsort((within, group))
    members = int(np.count_nonzero(group == group[0]))
    return msgspec.convert(devices[order].reshape(-1, members).tolist(), list[list[int]])


def _in_order(mesh: Any, count: int) -> Any:
    """Return the devices of a mesh in the order of its axes; None if they do not fit."""
    import numpy as np

    if not 0 < count <= MOST_DEVICES:
        return None
    if mesh.device_ids:
        is_sound = len(mesh.device_ids) == count and min(mesh.device_ids) >= 0
        return np.array(mesh.device_ids) if is_sound else None
    shape, order = list(mesh.order.shape) or [count], list(mesh.order.order)
    order = order or list(range(len(shape)))
    if min(shape) < 1 or math.prod(shape) != count or sorted(order) != list(range(len(shape))):
        return None
    return np.arange(count).reshape(shape).transpose(order).ravel() if len(shape) <= MOST_AXES else None


def _regular(iota: Any) -> list[list[int]]:
    """Return groups of numbers in order, reshaped and transposed."""
    import numpy as np

    count = math.prod(iota.shape)
    is_sound = 0 < count <= MOST_DEVICES and iota.groups > 0 and iota.groups * iota.size == count
    order = list(iota.order) or list(range(len(iota.shape)))
    if not is_sound or sorted(order) != list(range(len(iota.shape))) or len(order) > MOST_AXES:
        return []
    numbers = np.arange(count).reshape(list(iota.shape)).transpose(order)
    return msgspec.convert(numbers.reshape(iota.groups, iota.size).tolist(), list[list[int]])
