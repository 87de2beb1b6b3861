"""Storages of tensors on the device: the nodes that make and use them, and the last node before their end.

A storage lives as long as Python or the autograd graph holds it. A run of et-sim frees a tensor after its
last use; so the last node that is issued before a storage ends lists it as read. A resized storage is a new
tensor.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from msgspec import Struct

from recorder.process.streams import NAME
from recorder.process.tape import Tape
from recorder.recorded import RecordedNode, StepPhase

_LABEL = {
    StepPhase.SETUP: "unknown",
    StepPhase.FORWARD: "activations",
    StepPhase.BACKWARD: "temporary",
    StepPhase.RECOMPUTE: "activations",
    StepPhase.OPTIMIZER: "optimizer",
}


class Storage(Struct):
    """A storage, and its present tensor."""

    number: int
    bytes: int
    last_use: int = -1  # node
    writer: int | None = None  # an asynchronous collective that still writes it
    freed: bool = False
    finalizer: Any = None


class Storages:
    """All storages of the device that the program has made."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._of: dict[int, Storage] = {}  # by address of the C++ object
        self._labels: list[str] = []
        self.first_use: dict[int, int] = {}  # node, by number of the tensor
        self.last_read: dict[int, int] = {}
        self._unread: dict[int, list[int]] = {}  # ended without a reader, by stream: until its next node
        self.alive_bytes = 0
        self.peak_bytes = 0

    def of(self, tensor: torch.Tensor) -> Storage:
        """Return the storage of a tensor, which may be a new one."""
        untyped = tensor.untyped_storage()
        address, size = untyped._cdata, untyped.nbytes()
        storage = self._of.get(address)
        if storage is None or storage.freed:
            storage = self._of[address] = self._new(size)
            weakref.finalize(untyped, self._gone, address, storage).atexit = False
        elif storage.bytes != size:
            self._replace(storage, size)
        return storage

    def install(self) -> None:
        """Track storages that change their size, such as those of FSDP's gathered weights."""
        resize = torch.UntypedStorage.resize_

        def resized(untyped: Any, size: int) -> Any:
            result = resize(untyped, size)
            storage = self._of.get(untyped._cdata)
            if storage is not None and storage.bytes != size:
                self._replace(storage, size)
            return result

        torch.UntypedStorage.resize_ = resized

    def _replace(self, storage: Storage, size: int) -> None:
        self._free(storage)
        replaced = self._new(size)
        storage.number, storage.bytes, storage.last_use = replaced.number, size, -1

    def _new(self, size: int) -> Storage:
        self._labels.append(_LABEL[self._tape.phase])
        self._tape.recorded.tensors.append(("", size))
        self.alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)
        return Storage(len(self._labels) - 1, size)

    def label(self, tensor: torch.Tensor, label: str) -> None:
        """Set the purpose of a tensor."""
        if tensor.device.type == NAME:
            self._labels[self.of(tensor).number] = label

    def uses(self, node: RecordedNode, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """Record that a node reads and writes tensors."""
        at = len(self._tape.nodes) - 1
        node.reads.extend(self._unread.pop(node.stream, ()))
        written = [self.of(write) for write in writes]
        made = {storage.number for storage in written if storage.number not in self.first_use}
        # an argument that is written first may be memory without content, so it is not read
        read = [storage for storage in map(self.of, reads) if storage.number not in made]
        for storages, named in ((read, node.reads), (written, node.writes)):
            for storage in storages:
                self.first_use.setdefault(storage.number, at)
                if storage.bytes and storage.number not in named:
                    named.append(storage.number)
                storage.last_use = at
        self.last_read.update((storage.number, at) for storage in read)

    def _gone(self, address: int, storage: Storage) -> None:
        if self._of.get(address) is storage:
            del self._of[address]
        storage.freed = True
        self._free(storage)

    def _free(self, storage: Storage) -> None:
        self.alive_bytes -= storage.bytes
        if not storage.bytes or storage.last_use < 0:
            return
        # memory is reused in the order of its stream, regardless of other streams
        number, node = storage.number, self._tape.nodes[storage.last_use]
        last = self._tape.nodes[self._tape.last_issued(node.stream)]
        if last is not node:
            last.reads.append(number)
        elif number in node.writes:
            if self.first_use[number] < storage.last_use:
                node.writes.remove(number)  # its content is not used afterwards
                if number not in node.reads:
                    node.reads.append(number)
            else:
                self._unread.setdefault(node.stream, []).append(number)

    def finish(self) -> None:
        """Name the tensors, after all their uses are recorded."""
        sizes = self._tape.recorded.tensors
        self._tape.recorded.tensors = [
            (f"{label}:{number}", size)
            for number, (label, (_, size)) in enumerate(zip(self._labels, sizes, strict=True))
        ]
        self._tape.recorded.peak_bytes = self.peak_bytes
