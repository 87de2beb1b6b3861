"""Recordings of a played program, as PyTorch would write them: Kineto timelines, and execution traces.

Forms of several years: with record-function ids and arguments of NCCL, or with external ids and whole
microseconds; with CUPTI's synchronisation events, or without; with an execution trace, or without. `write`
puts the files of all ranks into a folder, as `et-convert pytorch FOLDER` expects them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playing import HostEvent, Played
from program import Program, Transfer, WaitEvent

BASE_US = 4_384_738_000_000
KINETO_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "send": "send",
    "recv": "recv",
}
# The output comes before the input.
_DIMS_FIRST = {"c10d::_allgather_base_", "c10d::allgather_", "c10d::_reduce_scatter_base_"}


@dataclass(frozen=True)
class Form:
    """The form of a recording."""

    schema: str = "1.1.1-chakra.0.0.4"  # of the execution trace; "" without one
    is_new: bool = True  # record-function ids, NCCL's arguments, nanoseconds
    has_sync: bool = False  # cuda_sync events name the event that a stream or thread waited for

    @property
    def name(self) -> str:
        """Return a name for tables."""
        what = [f"schema {self.schema.partition('-')[0]}" if self.schema else "timeline alone"]
        return ", ".join([*what, *(["waits recorded"] if self.has_sync else [])])

    def span_ns(self, played: Played) -> int:
        """Return the time from the first to the last event in the files."""
        if self.is_new:
            return played.end - played.begin
        return (played.end // 1000 - played.begin // 1000) * 1000


FORMS = (
    Form(),
    Form(has_sync=True),
    Form("1.0.1", is_new=False),
    Form("", has_sync=True),
    Form(""),
)


def write(folder: Path, program: Program, played: list[Played], form: Form) -> None:
    """Write the recordings of all ranks."""
    for rank, played_rank in enumerate(played):
        writer = _Rank(program, rank, played_rank, form)
        (folder / f"kineto_{rank}.json").write_text(json.dumps(writer.timeline()))
        if form.schema:
            (folder / f"et_{rank}.json").write_text(json.dumps(writer.execution_trace()))


class _Rank:
    def __init__(self, program: Program, rank: int, played: Played, form: Form) -> None:
        self.program, self.rank, self.played, self.form = program, rank, played, form
        self.process = 4000 + rank
        self.clock = program.clocks[rank] if program.clocks else 0
        self.tensors: dict[str, int] = {}
        threads = sorted({event.thread for event in played.host})
        self.thread_of = {thread: self.process + at for at, thread in enumerate(threads)}
        calls = [at for at, event in enumerate(played.host) if event.category != "cuda_runtime"]
        self.number = {at: number for number, at in enumerate(calls, start=2)}  # record-function ids

    # -- Kineto

    def timeline(self) -> dict[str, Any]:
        """Return the file that the profiler exports."""
        distributed: dict[str, Any] = {"rank": self.rank, "world_size": len(self.program.ranks)}
        distributed["backend"] = self.program.backend
        if self.form.is_new:
            groups = [
                {
                    "pg_name": name,
                    "pg_desc": "default_pg",
                    "backend_config": "cuda:nccl",
                    "pg_size": len(ranks),
                }
                | {"ranks": list(ranks)}
                for name, ranks in self.program.groups.items()
            ]
            distributed |= {"pg_count": len(groups), "pg_config": groups}
        events = [*self._host(), *self._device(), *self._syncs(), *self._arrows()]
        first, last = self.played.begin, self.played.end
        span = {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Spans",
            "tid": "PyTorch Profiler",
        }
        events.append(span | self._times(first, last) | {"args": {"Op count": 0}})
        return {
            "schemaVersion": 1,
            "distributedInfo": distributed,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_711_964_646_000_000_000 if self.form.is_new else 0,
            "traceEvents": events,
            "traceName": f"kineto_{self.rank}.json",
        }

    def _times(self, begin: int, end: int) -> dict[str, Any]:
        begin, end = begin + self.clock, end + self.clock
        if not self.form.is_new:
            first, last = begin // 1000, end // 1000
            return {"ts": BASE_US + first, "dur": last - first}
        return {"ts": _Exact(begin).text(BASE_US), "dur": _Exact(end - begin).text(0)}

    def _host(self) -> Iterator[dict[str, Any]]:
        for at, event in enumerate(self.played.host):
            own = {"ph": "X", "cat": event.category, "name": event.name, "pid": self.process}
            own |= {"tid": self.thread_of[event.thread]} | self._times(event.begin, event.end)
            yield own | {"args": self._host_arguments(at, event)}

    def _host_arguments(self, at: int, event: HostEvent) -> dict[str, Any]:
        if event.category == "cuda_runtime":
            outer = self.number.get(event.parent, 0)
            external = outer if self.form.is_new and outer else event.correlation
            return {"External id": external, "cbid": 211, "correlation": event.correlation}
        number = self.number[at]
        own: dict[str, Any] = {"External id": number if self.form.is_new else number + 1000}
        own["Ev Idx"] = number
        if self.form.is_new:
            own["Record function id"] = number
        if "sequence" in event.step.arguments:
            own |= {"Sequence number": event.step.arguments["sequence"]}
            own |= {"Fwd thread id": 1 if "backward" in event.step.arguments else 0}
        transfer = event.step.transfer
        if transfer is not None:
            own |= self._shapes(event.name, transfer)
            if self.form.is_new and event.name == "record_param_comms":
                own |= self._nccl(transfer)
        elif "waits" in event.step.arguments and self.form.is_new:
            own |= {"Collective name": "wait", "dtype": "Byte", "In msg nelems": 0, "Out msg nelems": 0}
            own |= {
                "Group size": 1,
                "Process Group Ranks": "[]",
                "In split size": "[]",
                "Out split size": "[]",
            }
        return own

    def _shapes(self, name: str, transfer: Transfer) -> dict[str, Any]:
        elements = transfer.size // 4
        if name.startswith("c10d::"):
            if name in _DIMS_FIRST:
                return {
                    "Input Dims": [[_out(transfer)], [elements], []],
                    "Input type": ["float", "float", ""],
                }
            return {"Input Dims": [[[elements]], [], []], "Input type": ["TensorList", "", ""]}
        return {"Input Dims": [[elements]], "Input type": ["float"]}

    def _nccl(self, transfer: Transfer) -> dict[str, Any]:
        ranks = self.program.groups[transfer.group]
        elements, size, out = transfer.size // 4, len(ranks), _out(transfer)
        own: dict[str, Any] = {
            "Collective name": KINETO_NAMES[transfer.kind],
            "dtype": "Float",
            "In msg nelems": elements,
            "Out msg nelems": out,
            "Group size": size,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": transfer.group,
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(ranks)),
        }
        if transfer.peer >= 0:
            own["Dst Rank" if transfer.kind == "send" else "Src Rank"] = transfer.peer
        return own

    def _device(self) -> Iterator[dict[str, Any]]:
        for event in self.played.device:
            work = event.work
            outer = self.number.get(event.launched_in, 0)
            own: dict[str, Any] = {
                "External id": outer if self.form.is_new and outer else event.correlation,
                "device": 0,
                "context": 1,
                "stream": event.stream,
                "correlation": event.correlation,
            }
            if work.sort != "kernel":
                own["bytes"] = work.size
            if work.transfer is not None and self.form.is_new:
                own |= self._nccl(work.transfer)
            yield (
                {"ph": "X", "cat": work.sort, "name": work.name, "pid": 0, "tid": event.stream}
                | self._times(event.begin, event.end)
                | {"args": own}
            )

    def _syncs(self) -> Iterator[dict[str, Any]]:
        if not self.form.has_sync:
            return
        for event in self.played.host:
            if event.waited is None:
                continue
            kind, stream, recorded = event.waited
            own: dict[str, Any] = {
                "cuda_sync_kind": kind,
                "correlation": event.correlation,
                "device": 0,
                "stream": -1,
            }
            if kind in ("Stream Wait Event", "Event Sync"):
                own |= {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": recorded}
                own |= {"wait_on_cuda_event_id": recorded}
            if kind == "Stream Wait Event":
                assert isinstance(event.step, WaitEvent)
                own["stream"] = event.step.stream
            elif kind == "Stream Sync":
                own["stream"] = stream
            where = {"ph": "X", "cat": "cuda_sync", "name": kind, "pid": 0, "tid": own["stream"]}
            yield where | self._times(event.begin, event.end) | {"args": own}

    def _arrows(self) -> Iterator[dict[str, Any]]:
        """Yield arrows from launches to work, and from forward operators to backward ones."""
        arrow = {"cat": "ac2g", "name": "ac2g"}
        begins = {event.correlation: event for event in self.played.host if event.correlation >= 0}
        for event in self.played.device:
            call = begins[event.correlation]
            at = {
                "pid": self.process,
                "tid": self.thread_of[call.thread],
                "ts": self._times(call.begin, call.end)["ts"],
            }
            yield arrow | {"ph": "s", "id": event.correlation} | at
            there = {"pid": 0, "tid": event.stream, "ts": self._times(event.begin, event.end)["ts"]}
            yield arrow | {"ph": "f", "id": event.correlation, "bp": "e"} | there
        arrow = {"cat": "fwdbwd", "name": "fwdbwd"}
        forward: dict[int, HostEvent] = {}
        for event in sorted(self.played.host, key=lambda event: event.begin):
            own = getattr(event.step, "arguments", {})
            if "sequence" not in own or event.name.startswith("autograd::"):
                continue
            if "backward" not in own:
                forward[own["sequence"]] = event
                continue
            for phase, end in (("s", forward.get(own["sequence"])), ("f", event)):
                if end is not None:
                    at = {"pid": self.process, "tid": self.thread_of[end.thread]}
                    at |= {"ts": self._times(end.begin, end.end)["ts"]} | (
                        {"bp": "e"} if phase == "f" else {}
                    )
                    yield arrow | {"ph": phase, "id": own["sequence"]} | at

    # -- the execution trace

    def execution_trace(self) -> dict[str, Any]:
        """Return the file of ExecutionTraceObserver."""
        nodes = [self._node(1, "[pytorch|profiler|execution_trace|process]", 1, 0, 7)]
        threads = {thread: 2 + at for at, thread in enumerate(self.thread_of)}
        for at, thread in enumerate(self.thread_of, start=1):
            nodes.append(
                self._node(threads[thread], "[pytorch|profiler|execution_trace|thread]", 1, 0, 7, at)
            )
        first = 10
        if self.form.is_new:
            nodes.append(self._groups(first - 1))
        for at, number in self.number.items():
            event = self.played.host[at]
            outer = self.number.get(event.parent)
            caller = threads[event.thread] if outer is None else first + outer
            nodes.append(
                self._node(
                    first + number,
                    event.name,
                    caller,
                    number,
                    7 if event.category == "user_annotation" else 0,
                    list(self.thread_of).index(event.thread) + 1,
                    event,
                )
            )
        return {
            "schema": self.form.schema,
            "pid": self.process,
            "time": "2024-05-22 17:15:22",
            "start_ts": 0,
            "finish_ts": 1 + self.played.end // 1000,
            "nodes": nodes,
        }

    def _tensor(self, name: str, elements: int) -> list[Any]:
        """Return a tensor of an execution trace, the same for the same name."""
        number = 100_000 + 2 * self.tensors.setdefault(name, len(self.tensors))
        return [number, number + 1, 0, elements, 4, "cpu" if self.program.backend == "gloo" else "cuda:0"]

    def _groups(self, number: int) -> dict[str, Any]:
        groups = [
            {"pg_name": name, "pg_desc": "default_pg", "backend_config": "cuda:nccl"}
            | {"ranks": [], "group_size": len(ranks), "group_count": 1}
            for name, ranks in self.program.groups.items()
        ]
        return self._node(
            number, "## process_group:init ##", 2, 1, 7, 1, None, ([json.dumps(groups)], ["String"])
        )

    def _node(
        self,
        number: int,
        name: str,
        caller: int,
        record: int,
        scope: int,
        thread: int = 1,
        event: HostEvent | None = None,
        given: tuple[list[Any], list[str]] = ([], []),
    ) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        outputs: tuple[list[Any], list[str]] = [], []
        sequence = -1
        if event is not None:
            sequence = event.step.arguments.get("sequence", -1)
            given, outputs, attributes = self._tensors(event)
        shapes = [[] for _ in given[0]]
        if not self.form.is_new:
            return {
                "name": name, "id": number, "rf_id": record, "parent": caller, "fw_parent": 0,
                "seq_id": sequence, "scope": scope, "tid": thread, "fw_tid": 0, "op_schema": "",
                "inputs": given[0],
                "input_shapes": shapes, "input_types": given[1], "outputs": outputs[0],
                "output_shapes": [[] for _ in outputs[0]], "output_types": outputs[1],
            }  # fmt: skip
        common = {
            "rf_id": record,
            "fw_parent": 0,
            "seq_id": sequence,
            "scope": scope,
            "tid": thread,
            "fw_tid": 0,
        }
        every = [
            *(
                {"name": key, "type": "int64" if key == "seq_id" else "uint64", "value": value}
                for key, value in common.items()
            ),
            {"name": "op_schema", "type": "string", "value": ""},
            *(
                {"name": key, "type": "string" if isinstance(value, str) else "uint64", "value": value}
                for key, value in attributes.items()
            ),
        ]
        return {
            "id": number,
            "name": name,
            "ctrl_deps": caller,
            "inputs": {"values": given[0], "shapes": shapes, "types": given[1]},
            "outputs": {"values": outputs[0], "shapes": [[] for _ in outputs[0]], "types": outputs[1]},
            "attrs": every,
        }

    def _tensors(
        self, event: HostEvent
    ) -> tuple[tuple[list[Any], list[str]], tuple[list[Any], list[str]], dict[str, Any]]:
        """Return inputs and outputs of a communication with their types, and attributes."""
        transfer: Transfer | None = event.step.transfer
        none: tuple[list[Any], list[str]] = [], []
        if transfer is None:
            sides = (event.step.arguments.get(side, ()) for side in ("inputs", "outputs"))
            own = [[self._tensor(name, 4096) for name in names] for names in sides]
            if any(own):
                return (
                    (own[0], ["Tensor(float)"] * len(own[0])),
                    (own[1], ["Tensor(float)"] * len(own[1])),
                    {},
                )
            if "waits" not in event.step.arguments:
                return none, none, {}
            values = [1, ["", ""], 0, "wait", [], [], -1, -1, 1]
            types = [
                "Int",
                "Tuple[String,String]",
                "Int",
                "String",
                "GenericList[]",
                "GenericList[]",
                "Int",
                "Int",
                "Int",
            ]
            return (values, types), none, {"collective_name": "wait"} if self.form.is_new else {}
        elements, size, out = transfer.size // 4, len(self.program.groups[transfer.group]), _out(transfer)
        tensor = self._tensor(event.step.arguments.get("tensor", "gradients"), elements)
        if event.name.startswith("nccl:") or event.name.startswith("gloo:"):
            return ([[tensor]], ["GenericList[Tensor(float)]"]), none, {}
        result = tensor if out == elements else self._tensor(f"{event.step.arguments.get('tensor')} out", out)
        if event.name.startswith("c10d::"):
            if event.name in _DIMS_FIRST:
                values, types = [result, tensor, "<Object>"], ["Tensor(float)", "Tensor(float)", "Object"]
            elif transfer.peer >= 0:
                values = [[tensor], "<Object>", transfer.peer, 0]
                types = ["GenericList[Tensor(float)]", "Object", "Int", "Int"]
            else:
                values, types = (
                    [[tensor], "<Object>", "<Object>"],
                    ["GenericList[Tensor(float)]", "Object", "Object"],
                )
            return (values, types), ([result], ["Tensor(float)"]), {}
        group: Any = [transfer.group, "default_pg"] if self.form.is_new else 93825114103440
        own = transfer.peer if transfer.peer >= 0 else self.rank
        values = [[tensor], 1, group, own, KINETO_NAMES[transfer.kind], [], []]
        types = [
            "GenericList[Tensor(float)]",
            "Int",
            "Tuple[String,String]" if self.form.is_new else "Int",
            "Int",
        ]
        types += ["String", "GenericList[]", "GenericList[]"]
        if self.form.is_new:
            values += [0, 1, size]
            types += ["Int", "Int", "Int"]
            attributes = {
                "collective_name": KINETO_NAMES[transfer.kind], "dtype": "Float", "in_msg_nelems": elements,
                "out_msg_nelems": out, "pg_name": transfer.group, "pg_desc": "default_pg", "pg_size": size,
            }  # fmt: skip
        else:
            values, types, attributes = [*values, size], [*types, "Int"], {}
        return (values, types), ([result], ["Tensor(float)"]), attributes


def _out(transfer: Transfer) -> int:
    """Return the number of elements that a rank gets."""
    elements, size = transfer.size // 4, len(transfer.ranks)
    return {"all_gather": elements * size, "reduce_scatter": elements // size}.get(transfer.kind, elements)


class _Exact(int):
    """Nanoseconds as microseconds with three decimals."""

    def text(self, base_us: int) -> float:
        return float(f"{base_us + self // 1000}.{self % 1000:03d}")
