"""The use of an NPU's own memory: from reads and writes of tensors to bytes alive over time.

A tensor is alive from the start of the node that writes it to the end of the last node that reads it, and for
ever if none does. A tensor that is read without having been written was there from the start. A tensor may be
written again: it goes on living if its earlier value is still needed then, or was never read, and was not
alive in between if not; it never counts twice. Nodes count in the order in which they complete, and reads of
a node count before its writes. The first size mentioned is the tensor's size.

Pure arithmetic on columns, for many owners of memory at once.

Tensors have classes: weights, gradients, optimizer states, activations, temporary ones. The class follows
from the name: a class and a colon in front (`weights:layer1`), or else the last word in it that stands for a
class (`layer1.weight.grad` is a gradient). Other names have no class.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

CLASSES = ("weights", "gradients", "optimizer", "activations", "temporary", "unknown")
UNKNOWN = CLASSES.index("unknown")
_WORDS = {
    "weights": ("weight", "weights", "bias", "biases", "parameter", "parameters", "param", "params"),
    "gradients": ("gradient", "gradients", "grad", "grads"),
    "optimizer": ("optimizer", "optim", "momentum", "variance"),
    "activations": ("activation", "activations"),
    "temporary": ("temporary", "temp", "tmp", "workspace", "scratch"),
}
CLASS_OF_WORD = MappingProxyType(
    {word: CLASSES.index(name) for name, words in _WORDS.items() for word in words}
)
_LETTERS = re.compile(r"[A-Za-z]+")


def class_of(tensor: str) -> int:
    """Return the class of a tensor, by its name, as an index into CLASSES."""
    class_name, colon, _ = tensor.partition(":")
    if colon and class_name in CLASSES:
        return CLASSES.index(class_name)
    known = [CLASS_OF_WORD[word] for word in _LETTERS.findall(tensor.lower()) if word in CLASS_OF_WORD]
    return known[-1] if known else UNKNOWN


def classes_of(tensors: Sequence[str]) -> Any:
    """Return the classes of tensors, by their names."""
    return np.array([class_of(tensor) for tensor in tensors], np.int8)


FOREVER = np.iinfo(np.int64).max
NO_NODE = -1


class Accesses(Struct, frozen=True, eq=False):
    """Reads and writes by nodes that completed, in any order; sizes are above zero."""

    owner: Any
    tensor: Any
    bytes: Any
    is_write: Any
    node: Any
    start_ns: Any  # of the node
    end_ns: Any
    place: Any | None = (
        None  # of nodes that begin and end together, the lower one came first; None: as numbered
    )


class Lifetimes(Struct, frozen=True, eq=False):
    """The lifetimes of tensors; those of one tensor neither overlap nor touch."""

    owner: Any
    tensor: Any
    bytes: Any
    start_ns: Any
    end_ns: Any  # FOREVER: no node reads it
    written_by: Any  # NO_NODE: it was there from the start
    last_read_by: Any


class Changes(Struct, frozen=True, eq=False):
    """Every change of the bytes alive, by owner and time; at one time, releases come first."""

    owner: Any
    time_ns: Any
    tensor: Any
    node: Any
    delta_bytes: Any
    alive_bytes: Any  # once everything at this time has changed

    def where(self, mask: Any) -> Changes:
        """Return the changes that a mask selects."""
        return Changes(*(getattr(self, name)[mask] for name in self.__struct_fields__))


def lifetimes(accesses: Accesses) -> Lifetimes:
    """Return the lifetimes of all tensors."""
    order = np.lexsort(
        (
            accesses.is_write,
            accesses.node if accesses.place is None else accesses.place,
            accesses.start_ns,
            accesses.end_ns,
            accesses.tensor,
            accesses.owner,
        )
    )
    owner, tensor, is_write = accesses.owner[order], accesses.tensor[order], accesses.is_write[order]
    is_new = _differs(owner) | _differs(tensor)
    head = np.flatnonzero(is_new | is_write)  # where a value of a tensor begins
    last = _lasts(head, len(order))
    is_given, is_only_written = ~is_write[head], is_write[head] & (last == head)
    start = np.where(is_given, 0, accesses.start_ns[order[head]])
    of_tensor = np.cumsum(is_new)[head] - 1
    first_size = accesses.bytes[order[is_new]]
    all_lifetimes = Lifetimes(
        owner=owner[head],
        tensor=tensor[head],
        bytes=first_size[of_tensor],
        start_ns=start,
        end_ns=np.where(is_only_written, _overwritten(start, of_tensor), accesses.end_ns[order[last]]),
        written_by=np.where(is_given, NO_NODE, accesses.node[order[head]]),
        last_read_by=accesses.node[order[last]],
    )
    return _joined(all_lifetimes, of_tensor)


def _differs(column: Any) -> Any:
    """Return where a column differs from the row before; the first row does."""
    return np.concatenate((np.ones(min(len(column), 1), np.bool_), column[1:] != column[:-1]))


def _lasts(first: Any, rows: int) -> Any:
    """Return the last row of each run of rows, from the first row of each."""
    return np.append(first[1:], rows)[: len(first)] - 1


def _overwritten(start: Any, of_tensor: Any) -> Any:
    """Return until when a value without a reader holds memory: until the tensor's next value begins."""
    is_last = np.append(of_tensor[1:] != of_tensor[:-1], np.ones(min(len(start), 1), np.bool_))
    return np.where(is_last, FOREVER, np.maximum(start, np.roll(start, -1)))


def _joined(values: Lifetimes, of_tensor: Any) -> Lifetimes:
    """Return lifetimes in which those of one tensor that overlap or touch are one."""
    order = np.lexsort((values.start_ns, of_tensor))
    of_tensor, start = of_tensor[order], values.start_ns[order]
    ends, place = np.unique(values.end_ns[order], return_inverse=True)
    # The latest end so far among those of the same tensor: a later tensor has only higher numbers.
    rising = of_tensor * len(ends) + place.reshape(-1)
    reached = np.maximum.accumulate(rising)
    reached_ns = ends[reached - of_tensor * len(ends)]
    is_first = _differs(of_tensor)
    is_first[1:] |= start[1:] > reached_ns[:-1]
    first = np.flatnonzero(is_first)
    last = _lasts(first, len(order))
    holder = np.maximum.accumulate(np.where(rising == reached, np.arange(len(order)), 0))
    head, tail = order[first], order[holder[last]]
    return Lifetimes(
        owner=values.owner[head],
        tensor=values.tensor[head],
        bytes=values.bytes[head],
        start_ns=values.start_ns[head],
        end_ns=values.end_ns[tail],
        written_by=values.written_by[head],
        last_read_by=values.last_read_by[tail],
    )


def changes(alive: Lifetimes) -> Changes:
    """Return the starts and ends of lifetimes, and the bytes alive after each."""
    ends = np.flatnonzero(alive.end_ns != FOREVER)
    which = np.concatenate((np.arange(len(alive.owner)), ends))
    time = np.concatenate((alive.start_ns, alive.end_ns[ends]))
    delta = np.concatenate((alive.bytes, -alive.bytes[ends]))
    node = np.concatenate((alive.written_by, alive.last_read_by[ends]))
    order = np.lexsort((alive.tensor[which], delta > 0, time, alive.owner[which]))
    owner, time, delta = alive.owner[which[order]], time[order], delta[order]
    is_first = _differs(owner)
    total = np.cumsum(delta)  # over all owners; differences are right even if it wraps around
    before = (total - delta)[is_first]
    running = total - before[np.cumsum(is_first) - 1]
    tick = np.flatnonzero(is_first | _differs(time))
    last = _lasts(tick, len(order))
    return Changes(
        owner=owner,
        time_ns=time,
        tensor=alive.tensor[which[order]],
        node=node[order],
        delta_bytes=delta,
        alive_bytes=np.repeat(running[last], last - tick + 1),
    )


def peaks(changes: Changes, owners: int) -> Any:
    """Return the most bytes alive at any time, per owner; 0 without any."""
    most = np.zeros(owners, np.int64)
    np.maximum.at(most, changes.owner, changes.alive_bytes)
    return most
