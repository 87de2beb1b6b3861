"""Communication: c10d operators and functional collectives become nodes with their groups, bytes and waits.

A call with `async_op` runs on a stream of its group (messages: of group and peer) that waits for the current
one; others run on the current stream. The first use of a tensor that an asynchronous collective still writes
implies a wait for it: PyTorch's C++ waits without a visible call, and the recording counts these waits.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct, field
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed import ProcessGroup

from recorder.process.communication_forms import (
    C10D,
    FUNCTIONAL,
    Given,
    OperatorForm,
    bound,
    reduction_of,
    splits_of,
    tensors_of,
)
from recorder.process.costs import DTYPES, size_of
from recorder.process.objects import MeetingFolder, PeerNeeded
from recorder.process.storages import Storage, Storages
from recorder.process.streams import NAME
from recorder.process.tape import Tape, user_place
from recorder.process.values import outcome, set_value, value_of
from recorder.recorded import RecordedKind, RecordedNode

MOST_DELIVERED = 1 << 24  # elements


class FinishedWork(dist._Work):
    """The result of c10d for an operation; a wait for it is recorded on the tape."""

    def __init__(self, wait: Callable[[], None], results: list[torch.Tensor]) -> None:
        super().__init__()
        self._wait = wait
        # the program may keep this object; its tensors must be free
        self._held = [weakref.ref(result) for result in results]

    @property
    def _results(self) -> list[torch.Tensor]:
        return [tensor for reference in self._held if (tensor := reference()) is not None]

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002
        self._wait()
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self._results

    def get_future(self) -> torch.futures.Future[Any]:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._results)
        return future


class _Group(Struct):
    """A process group on the tape."""

    number: int
    members: list[int]
    rank: int
    stream: int
    peers: dict[int, int] = field(default_factory=dict)  # stream by peer


class RankCommunication:
    """The communication of one rank."""

    def __init__(self, tape: Tape, storages: Storages, meeting: MeetingFolder) -> None:
        self._tape, self._storages, self._meeting = tape, storages, meeting
        self._groups: dict[str, _Group] = {}
        self._works: list[FinishedWork] = []
        self._stopped_by: PeerNeeded | None = None
        self._writing: dict[int, Storage] = {}  # storages that asynchronous collectives still write, by id

    def is_communication(self, func: Any) -> bool:
        """Return whether an operator of c10d is communication or a wait; add a remark on unsupported ones."""
        name = func._schema.name.partition("::")[2]
        known = name in (C10D if func.namespace == "c10d" else FUNCTIONAL) or name == "wait_tensor"
        if not known and name not in ("monitored_barrier_", "check_for_nan"):
            self._tape.remark("unknown communication", f"{func._schema.name} is not recorded", user_place())
        return known

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record one operator and return its result."""
        name = func._schema.name.partition("::")[2]
        given = bound(func, args, kwargs)
        if name == "wait_tensor":
            self._wait_for([given["tensor"]])
            return given["tensor"]
        form = (C10D if func.namespace == "c10d" else FUNCTIONAL)[name]
        group = self._group(given[form.group])
        inputs = tensors_of(given.get(form.inputs))
        if form.gives == "result":
            result = func(*args, **kwargs) if _is_fake(inputs) else self._on_host(func, args, kwargs)
            outputs = tensors_of(result)
            self._exchange(form, given, group, inputs, outputs)
            return result
        outputs = tensors_of(given.get(form.outputs))
        node = self._exchange(form, given, group, inputs, outputs)
        work = FinishedWork(self._waiter(form, node, outputs or inputs), outputs or inputs)
        self._works.append(work)  # C++ would wait for ever for one whose Python half is gone
        return (given[form.outputs], work.boxed()) if form.gives == "pair" else work.boxed()

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return func(*args, **kwargs)

    # Nodes.

    def _exchange(
        self,
        form: OperatorForm,
        given: Given,
        group: _Group,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
    ) -> int | None:
        """Return the node of one operation, or None if the group is the rank alone and nothing moves."""
        if form.kind in ("send", "receive"):
            self._hand_over(form, group.members[given[form.root]], inputs, outputs)
        else:
            self._move_values(form, given, group, inputs, outputs)
            if form.kind in ("broadcast", "scatter") and len(group.members) > 1:
                self._share_out(form, group, self._root(form, given, group), inputs, outputs)
        if len(group.members) == 1:
            self._tape.remark("nothing moved", f"{form.kind} in a group of one rank")
            return None
        tape = self._tape
        is_async = given.get("async_op", True) if form.is_asynchronous is None else form.is_asynchronous
        stream = tape.current
        if is_async:
            stream = self._stream(form, given, group)
            tape.wait(stream, tape.last(tape.current))
        self.implied_waits((*inputs, *outputs), stream)
        node = self._add(form, given, group, stream, inputs, outputs)
        at = len(tape.nodes) - 1
        if self._stopped_by is not None:
            raise self._stopped_by
        self._storages.uses(node, _on_device(inputs), _on_device(outputs))
        if is_async:
            for output in _on_device(outputs):
                storage = self._storages.of(output)
                storage.writer = at
                self._writing[id(storage)] = storage
        return at

    def _stream(self, form: OperatorForm, given: Given, group: _Group) -> int:
        if form.kind not in ("send", "receive"):
            return group.stream
        peer = given[form.root] * 2 + (form.kind == "receive")
        if peer not in group.peers:
            group.peers[peer] = self._tape.new_stream()
        return group.peers[peer]

    def _add(
        self,
        form: OperatorForm,
        given: Given,
        group: _Group,
        stream: int,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
    ) -> RecordedNode:
        first = next(iter((*inputs, *outputs)), None)
        dtype = "" if first is None else DTYPES.get(first.dtype, "")
        if form.kind in ("send", "receive"):
            work = RecordedKind.SEND if form.kind == "send" else RecordedKind.RECEIVE
            return self._tape.add(
                work,
                form.kind,
                stream,
                bytes=size_of(inputs or outputs),
                group=group.number,
                peer=group.members[given[form.root]],
                tag=given.get("tag", 0),
                dtype=dtype,
            )
        size = size_of(outputs if form.kind == "scatter" else inputs)
        root = self._root(form, given, group)
        return self._tape.add(
            RecordedKind.COLLECTIVE,
            form.kind,
            stream,
            bytes=size,
            collective=form.kind,
            group=group.number,
            root=root,
            splits=splits_of(form, given, inputs, outputs, len(group.members)),
            dtype=dtype,
        )

    def _root(self, form: OperatorForm, given: Given, group: _Group) -> int:
        """Return the root of a collective among all ranks; -1 without one."""
        root: int = given[form.root] if form.root else -1
        return group.members[root] if form.root == "root_rank" else root

    def _group(self, handle: Any) -> _Group:
        if isinstance(handle, str):
            group = dist.distributed_c10d._resolve_process_group(handle)
        else:
            group = handle if isinstance(handle, ProcessGroup) else ProcessGroup.unbox(handle)
        name = group.group_name
        result = self._groups.get(name)
        if result is None:
            members = dist.get_process_group_ranks(group)
            number = self._tape.add_group(list(members), group.group_desc)
            result = _Group(number, list(members), group.rank(), self._tape.new_stream())
            self._groups[name] = result
        return result

    # Waits.

    def _waiter(
        self, form: OperatorForm, node: int | None, results: list[torch.Tensor]
    ) -> Callable[[], None]:
        held = [weakref.ref(result) for result in results]

        def wait() -> None:
            if node is None:
                return
            self._tape.wait(self._tape.current, [node])
            for reference in held:
                if (tensor := reference()) is not None and tensor.device.type == NAME:
                    self._done(self._storages.of(tensor))
            if form.kind == "barrier" or any(
                (tensor := reference()) is not None and tensor.device.type != NAME for reference in held
            ):
                self._tape.host_waits([node])

        return wait

    def _done(self, storage: Storage) -> None:
        storage.writer = None
        self._writing.pop(id(storage), None)

    def _wait_for(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in _on_device(tensors):
            storage = self._storages.of(tensor)
            if storage.writer is not None:
                self._tape.wait(self._tape.current, [storage.writer])
                self._done(storage)

    def implied_waits(self, tensors: Iterable[torch.Tensor], stream: int | None = None) -> None:
        """Wait for asynchronous collectives that still write the tensors about to be used."""
        if not self._writing:
            return
        stream = self._tape.current if stream is None else stream
        for tensor in _on_device(tensors):
            storage = self._storages.of(tensor)
            if storage.writer is not None and self._tape.nodes[storage.writer].stream != stream:
                kind = self._tape.nodes[storage.writer].operator
                self._tape.wait(stream, [storage.writer])
                self._tape.remark("implied wait", f"for {kind}, whose result was used without a wait")
                self._done(storage)

    def _hand_over(
        self, form: OperatorForm, peer: int, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> None:
        """Deliver integers, in which objects travel, between recorded ranks."""
        for tensor in (*inputs, *outputs):
            if not _is_delivered(tensor):
                if form.kind == "receive":
                    self._forget(form.kind, tensor)
            elif form.kind == "send":
                self._send(peer, tensor)
            else:
                self._receive(peer, tensor)
                if self._stopped_by is not None:
                    return

    def _share_out(
        self,
        form: OperatorForm,
        group: _Group,
        root: int,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
    ) -> None:
        """Deliver the integers of a root, in which objects travel, to members that are recorded beside it.

        A member that holds unknown values itself needs the root; others may assume that all have the same.
        """
        own = self._tape.recorded.rank
        way = f"{form.kind}{zlib.crc32(repr(group.members).encode()):08x}."
        for tensor in outputs:
            if not _is_delivered(tensor):
                continue
            if own == root:
                for place, member in enumerate(group.members):
                    if member != own:
                        sent = inputs[place] if form.kind == "scatter" else tensor
                        self._send(member, sent, way)
            elif self._meeting.is_recorded(root) or _is_unknown(tensor):
                self._receive(root, tensor, way)
                if self._stopped_by is not None:
                    return

    def _send(self, peer: int, tensor: torch.Tensor, way: str = "") -> None:
        with unset_fake_temporarily():
            value = value_of(tensor) if isinstance(tensor, FakeTensor) else tensor
            self._meeting.send(peer, value, way)

    def _receive(self, peer: int, tensor: torch.Tensor, way: str = "") -> None:
        """Write the value that a peer sends; a peer that is not recorded ends the recording."""
        with unset_fake_temporarily():
            try:
                value = self._meeting.receive(peer, tensor, way)
            except PeerNeeded as needed:
                self._stopped_by = needed  # raised once the node has its group
                return
            if isinstance(tensor, FakeTensor):
                set_value(tensor, None if value is None else value.reshape(tensor.shape))
            elif value is not None:
                tensor.copy_(value.reshape(tensor.shape))

    # Values, which are assumed to be the same on every member.

    def _move_values(
        self,
        form: OperatorForm,
        given: Given,
        group: _Group,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
    ) -> None:
        values = [value_of(tensor) if isinstance(tensor, FakeTensor) else tensor for tensor in inputs]
        known = bool(values) and all(tensor is not None for tensor in values)
        with unset_fake_temporarily():
            results = None
            if known:
                members = len(group.members)
                results = outcome(form.kind, reduction_of(given), values, outputs, group.rank, members)
            for tensor in outputs:
                if isinstance(tensor, FakeTensor) or results is None:
                    self._forget(form.kind, tensor)
            for tensor, value in zip(outputs, results or (), strict=False):
                if isinstance(tensor, FakeTensor):
                    set_value(tensor, value.clone())
                elif value is not tensor:
                    tensor.copy_(value.reshape(tensor.shape))

    def _forget(self, kind: str, tensor: torch.Tensor) -> None:
        """Mark the values of a received tensor as unknown."""
        if isinstance(tensor, FakeTensor):
            set_value(tensor, None)
        else:
            text = f"the host's tensor keeps its values, as the result of {kind} is unknown"
            self._tape.remark("assumed", text, user_place())


def _is_delivered(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor are exchanged between recorded ranks."""
    return not tensor.is_floating_point() and tensor.numel() <= MOST_DELIVERED


def _is_unknown(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of the device has no values of its own; the host's are read by programs."""
    return not isinstance(tensor, FakeTensor) or value_of(tensor) is None


def _on_device(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor.device.type == NAME]


def _is_fake(tensors: Iterable[torch.Tensor]) -> bool:
    return any(isinstance(tensor, FakeTensor) for tensor in tensors)
