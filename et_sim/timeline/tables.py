"""The Arrow tables of a run: their schemas, with the meaning of every column, and how they are filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from et_sim.memory import Changes
from et_sim.timeline.links import LinkSource
from et_sim.timeline.memory import EVENTS, MemorySource, events_of
from et_sim.timeline.messages import SENT_NAMES
from et_sim.timeline.path import WHAT_NAMES, PathSource
from et_sim.timeline.rows import BEGIN as BEGIN_CAUSE
from et_sim.timeline.rows import (
    COLLECTIVE_NAMES,
    END_CAUSES,
    KIND_NAMES,
    LANE_NAMES,
    MESSAGE,
    START_CAUSES,
    TREATMENT_NAMES,
    Rows,
    TimelineSource,
)

# Goes up when a column changes its meaning or disappears; new columns and tables do not count. Files without
# a version are of version 0, which lacks units and is otherwise the same as 1.
TABLES_VERSION = 1
WORDED = ("node", "what", "link")
WORD = pa.dictionary(pa.int8(), pa.string())
TEXT = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: Any, meaning: str) -> Any:
    return pa.field(name, kind, metadata={"meaning": meaning, "unit": unit_of(name)})


def unit_of(column: str) -> str:
    """The unit of a column's figures; empty where they have none."""
    if column.endswith("_ns"):
        return "ns"
    return "bytes" if column == "bytes" or column.endswith("_bytes") else ""


def about(manifest: str) -> dict[str, str]:
    """Metadata of every table: what went into the run, and the version of these schemas."""
    return {"et-sim": manifest, "et-sim.tables": str(TABLES_VERSION)}


TIMELINE_FIELDS = (
    _field("actor", pa.int32(), "the class of identical ranks that ran the node (see actors.arrow)"),
    _field("node", pa.uint64(), "node id in the trace"),
    _field("name", TEXT, "node name in the trace"),
    _field("kind", WORD, "what the node does; collectives by their type"),
    _field("lane", WORD, "what it occupied from start to end"),
    _field("treatment", WORD, "where its time comes from"),
    _field("ready_ns", pa.int64(), "when its last dependency completed"),
    _field("start_ns", pa.int64(), "when it was issued"),
    _field("end_ns", pa.int64(), "when it completed; null: never"),
    _field("bytes", pa.int64(), "payload as the trace gives it"),
    _field("group", TEXT, "communicator group of a collective"),
    _field("sequence", pa.int64(), "number of a collective's first chunk within its group"),
    _field("peer", pa.int32(), "actor at the other end of a send or receive"),
    _field("tag", pa.int64(), "tag of a send or receive"),
    _field("start_cause", WORD, "what let it start: the begin, a dependency, or its lane becoming free"),
    _field("start_cause_node", pa.uint64(), "the node of the same actor that was waited for last"),
    _field("end_cause", WORD, "what completed it: its own duration, or a message"),
    _field("end_cause_actor", pa.int32(), "the actor whose message completed it"),
    _field("end_cause_node", pa.uint64(), "the send that completed a receive"),
    _field("compute_utilisation", pa.float64(), "share of its peak rate that a kernel reaches (roofline)"),
    _field("memory_utilisation", pa.float64(), "share of the local memory's bandwidth that a kernel uses"),
    _field("operational_intensity", pa.float64(), "operations of a kernel per byte"),
    _field("memory_bound", pa.bool_(), "whether memory limits a kernel, and not its arithmetic"),
)

ACTOR_FIELDS = (
    _field("actor", pa.int32(), "number of the class"),
    _field("ranks", pa.string(), "the ranks that behave like this, as ranges"),
    _field("rank_count", pa.int64(), "how many they are"),
    _field("finish_ns", pa.int64(), "when the last node completed; null: never"),
    _field("compute_ns", pa.int64(), "time with a device kernel running"),
    _field("communication_ns", pa.int64(), "time with a send, receive or collective under way"),
    _field("memory_ns", pa.int64(), "time with a remote-memory request under way"),
    _field("cpu_ns", pa.int64(), "time with a CPU operation running"),
    _field("overlap_ns", pa.int64(), "time with kernels and communication at once"),
    _field("exposed_comm_ns", pa.uint64(), "the reference's figure: finish less the sum of kernel times"),
    _field(
        "exposed_comm_true_ns", pa.int64(), "time with communication under way and nothing else happening"
    ),
    _field("idle_ns", pa.int64(), "time before the finish with nothing under way"),
    _field("compute_bound_share", pa.float64(), "of the kernels' time, how much arithmetic limits"),
    _field("compute_utilisation", pa.float64(), "of the kernels, on average over their time"),
    _field("memory_utilisation", pa.float64(), "of the kernels, on average over their time"),
    _field("operational_intensity", pa.float64(), "of the kernels, on average over their time"),
    _field("peak_memory_bytes", pa.int64(), "the most local memory in use at a time; null: not tracked"),
)

MEMORY_FIELDS = (
    _field("actor", pa.int32(), "the class of identical ranks whose memory it is"),
    _field("time_ns", pa.int64(), "when it changes"),
    _field("event", WORD, "what happens to the tensor: given, written or released"),
    _field("tensor", TEXT, "name of the tensor in the trace"),
    _field("node", pa.uint64(), "the node that writes the tensor, or reads it last"),
    _field("delta_bytes", pa.int64(), "the tensor's size; negative when it is released"),
    _field("alive_bytes", pa.int64(), "memory in use once everything at this time has changed"),
)


PATH_FIELDS = (
    _field("by", pa.int64(), "row of the moment that came last of those this one needs; null: it needs none"),
    _field("also", pa.int64(), "row of another moment that it needs"),
    _field("start_ns", pa.int64(), "when all that it needs had come"),
    _field("end_ns", pa.int64(), "when it came"),
    _field("what", WORD, "how the time in between was spent, or what met"),
    _field("actor", pa.int32(), "whose work it is"),
    _field("node", pa.uint64(), "and the work of which node"),
    _field("link", TEXT, "class of links, for latency and serialisation"),
    _field("place", pa.int32(), "number of the lane, link, memory server, queue or side of a bus"),
)


PHASE_FIELDS = (
    _field("actor", pa.int32(), "the class of identical ranks"),
    _field("node", pa.uint64(), "the collective"),
    _field("chunk", pa.int32(), "number of the chunk within the collective"),
    _field("phase", pa.int32(), "number of the phase of this chunk"),
    _field("dimension", pa.int32(), "of the network, whose queues it uses"),
    _field("operation", WORD, "what the phase does"),
    _field("bytes", pa.int64(), "of the chunk, per member, in this phase"),
    _field("queued_ns", pa.int64(), "when the chunk joined the queue of the phase"),
    _field("start_ns", pa.int64(), "when it was let in"),
    _field("end_ns", pa.int64(), "when the phase was over"),
    _field("messages", pa.int32(), "how many it received"),
    _field("message_wait_ns", pa.int64(), "from posting their receives to their arrival, summed"),
)
LAYER_OF_PHASE_FIELDS = (
    _field("layer", pa.int32(), "of the layer file, counted from 0"),
    _field("layer_phase", WORD, "forward, input gradient or weight gradient"),
)
MESSAGE_FIELDS = (
    _field("actor", pa.int32(), "the class of identical ranks that sends it"),
    _field("node", pa.uint64(), "the send or collective; of a request, the receive or collective"),
    _field("kind", WORD, "what it belongs to: a send, a collective, a custom one; or a request"),
    _field("peer", pa.int32(), "the class of the rank that it goes to"),
    _field("chunk", pa.int32(), "number of the chunk within the collective"),
    _field("phase", pa.int32(), "number of the phase of this chunk"),
    _field(
        "step",
        pa.int32(),
        "its number among those that the sender sends in the phase; in a tree, 0 or 1 towards the root from "
        "the left or right, 2 or 3 from it; in a custom collective, the row of the send",
    ),
    _field(
        "dimension",
        pa.int32(),
        "the lowest in which its ends differ (network files of 1.0: the highest level); null: it stays",
    ),
    _field("bytes", pa.int64(), "size of the message"),
    _field("ready_ns", pa.int64(), "when its sender was ready to send it"),
    _field("sent_ns", pa.int64(), "when it was given to the network: with rendezvous, once it was asked for"),
    _field("start_ns", pa.int64(), "when the first link took it"),
    _field("left_ns", pa.int64(), "when its last byte had left the sender"),
    _field("arrived_ns", pa.int64(), "when its last byte had arrived"),
    _field("link_wait_ns", pa.int64(), "how long it waited for links on its way; null: no link model"),
)
LINK_FIELDS = (
    _field("actor", pa.int32(), "the class of identical ranks that has the link; each of them has one"),
    _field("dimension", pa.int32(), "of the network; of network files of 1.0, the level"),
    _field(
        "link", TEXT, "which of the links of a rank; without link model, all it sends along the dimension"
    ),
    _field("start_ns", pa.int64(), "when the slice of time begins; all slices are equally long"),
    _field("end_ns", pa.int64(), "when it ends: with the run at the latest"),
    _field(
        "busy_ns",
        pa.int64(),
        "how long messages were serialised in the slice; without link model, summed over messages, which may "
        "overlap: more than the slice is possible",
    ),
    _field("bytes", pa.int64(), "of the messages that began to be serialised in the slice"),
    _field("messages", pa.int64(), "how many these are, requests for messages (rendezvous) included"),
    _field(
        "wait_ns",
        pa.int64(),
        "how long messages waited for the link, summed; null: no link model",
    ),
    _field("longest_wait_ns", pa.int64(), "the longest that a message that began in the slice had waited"),
    _field("most_waiting", pa.int32(), "the most messages that waited for the link at a time"),
)
LAYER_PHASES = ("forward", "input gradient", "weight gradient")
LAYER_FIELDS = (
    _field("layer", TEXT, "name of the layer"),
    *(
        _field(f"{phase.replace(' ', '_')}_{figure}_ns", pa.int64(), f"{phase}: {meaning}")
        for figure, meaning in (
            ("compute", "time of its computations"),
            ("exposed", "time for which the training loop really waited for its communication"),
            ("total", "from issue to completion of its communication, update time included, summed"),
        )
        for phase in LAYER_PHASES
    ),
)


def timeline_schema(manifest: str) -> Any:
    """Schema of timeline.arrow; its metadata carries the run's manifest."""
    return pa.schema(TIMELINE_FIELDS, metadata=about(manifest))


class TimelineBatches:
    """Turns blocks of rows into Arrow record batches, all of which share their dictionaries."""

    def __init__(self, source: TimelineSource, manifest: str) -> None:
        self.schema = timeline_schema(manifest)
        words = {
            "name": source.names,
            "kind": KIND_NAMES,
            "lane": LANE_NAMES,
            "treatment": TREATMENT_NAMES,
            "group": source.group_names,
            "start_cause": START_CAUSES,
            "end_cause": END_CAUSES,
        }
        self._texts = {
            name: pa.array(list(dict.fromkeys(texts)), pa.string()) for name, texts in words.items()
        }
        self._first = {name: _first_of(texts) for name, texts in words.items()}

    def batch(self, rows: Rows) -> Any:
        """One block of rows as an Arrow record batch."""
        never_ended = rows.end_ns < 0
        columns = {
            "actor": rows.actor,
            "node": rows.node_id,
            **{name: self._coded(name, codes) for name, codes in _codes(rows, never_ended).items()},
            "ready_ns": rows.ready_ns,
            "start_ns": rows.start_ns,
            "end_ns": _unless(rows.end_ns, never_ended),
            "bytes": rows.bytes,
            "sequence": _unless(rows.sequence, rows.sequence < 0),
            "peer": _unless(rows.peer, rows.peer < 0),
            "tag": _unless(rows.tag, rows.tag < 0),
            "start_cause_node": _unless(rows.start_cause_node, rows.start_cause == BEGIN_CAUSE),
            "end_cause_actor": _unless(rows.end_cause_actor, rows.end_cause != MESSAGE),
            "end_cause_node": _unless(rows.end_cause_node, ~rows.has_end_node),
            **_utilisation(rows),
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[f.name]) for f in self.schema], schema=self.schema
        )

    def _coded(self, name: str, codes: Any) -> Any:
        first = self._first[name]
        if first is not None:
            codes = np.where(codes < 0, codes, first[codes])
        return _coded(codes, self._texts[name])


def _first_of(texts: Sequence[str]) -> Any:
    """Which of the different texts each one is; None if no two are alike (groups of one name may be many)."""
    number = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    return np.array([number[text] for text in texts], np.int32) if len(number) < len(texts) else None


def _codes(rows: Rows, never_ended: Any) -> dict[str, Any]:
    """The columns of texts, as numbers of texts; negative: none."""
    end_cause = rows.end_cause
    if never_ended.any():
        end_cause = np.where(never_ended, np.int8(-1), end_cause)
    return {
        "name": rows.name,
        "kind": rows.kind,
        "lane": rows.lane.view(np.int8),
        "treatment": rows.treatment.astype(np.int8),
        "group": rows.group,
        "start_cause": rows.start_cause,
        "end_cause": end_cause,
    }


def _utilisation(rows: Rows) -> dict[str, Any]:
    used = rows.utilisation
    if used is None:
        empty = pa.nulls(len(rows.actor), pa.float64())
        names = ("compute_utilisation", "memory_utilisation", "operational_intensity")
        return {**dict.fromkeys(names, empty), "memory_bound": pa.nulls(len(rows.actor), pa.bool_())}
    is_none = np.isnan(used.compute)
    return {
        "compute_utilisation": _unless(used.compute, is_none),
        "memory_utilisation": _unless(used.memory, is_none),
        "operational_intensity": _unless(used.intensity, is_none),
        "memory_bound": _unless(used.is_memory_bound, is_none),
    }


def path_schema(manifest: str, links: str, routes_by_bandwidth: bool) -> Any:
    """Schema of path.arrow; its metadata also says whose link has which number, and what decides routes."""
    routes = {"routes": "by bandwidth"} if routes_by_bandwidth else {}
    return pa.schema(PATH_FIELDS, metadata={**about(manifest), "links": links, **routes})


def path_batch(columns: dict[str, Any], source: PathSource, schema: Any) -> Any:
    """A block of moments as an Arrow record batch."""
    arrays = {name: _unless(values, values < 0) for name, values in columns.items() if name not in WORDED}
    arrays["node"] = _unless(columns["node"], columns["actor"] < 0)
    arrays["what"] = _words(columns["what"], WHAT_NAMES)
    arrays["link"] = _words(columns["link"], source.link_names, np.int32)
    return pa.RecordBatch.from_arrays([pa.array(arrays[f.name]) for f in schema], schema=schema)


def phase_schema(manifest: str, *, has_layers: bool) -> Any:
    """Schema of phases.arrow."""
    fields = PHASE_FIELDS + (LAYER_OF_PHASE_FIELDS if has_layers else ())
    return pa.schema(fields, metadata=about(manifest))


def phase_batch(columns: dict[str, Any], schema: Any) -> Any:
    """A block of phases as an Arrow record batch."""
    arrays = dict(columns)
    arrays["operation"] = _words(columns["operation"], COLLECTIVE_NAMES)
    if "layer_phase" in arrays:
        arrays["layer_phase"] = _words(columns["layer_phase"].astype(np.int8), LAYER_PHASES)
    return _batch(arrays, schema)


def message_schema(manifest: str) -> Any:
    """Schema of messages.arrow."""
    return pa.schema(MESSAGE_FIELDS, metadata=about(manifest))


def message_batch(columns: dict[str, Any], schema: Any) -> Any:
    """A block of messages as an Arrow record batch."""
    arrays = {name: _unless(values, values < 0) for name, values in columns.items() if name != "node"}
    arrays |= {"node": pa.array(columns["node"]), "kind": _words(columns["kind"], SENT_NAMES)}
    return _batch(arrays, schema)


def link_schema(manifest: str) -> Any:
    """Schema of links.arrow."""
    return pa.schema(LINK_FIELDS, metadata=about(manifest))


def link_batch(columns: dict[str, Any], source: LinkSource, schema: Any) -> Any:
    """Slices of links as an Arrow record batch."""
    arrays = {name: _unless(values, values < 0) for name, values in columns.items()}
    arrays["link"] = _words(columns["link"], source.names, np.int32)
    return _batch(arrays, schema)


def _batch(arrays: dict[str, Any], schema: Any) -> Any:
    columns = [pa.array(arrays[field.name]).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def layer_table(columns: dict[str, Any], manifest: str, figures: str) -> Any:
    """layers.arrow: a row per layer; figures of the whole run are in the metadata, as JSON."""
    schema = pa.schema(LAYER_FIELDS, metadata={**about(manifest), "figures": figures})
    return pa.Table.from_pydict(columns, schema)


def memory_schema(manifest: str) -> Any:
    """Schema of memory.arrow."""
    return pa.schema(MEMORY_FIELDS, metadata=about(manifest))


def tensor_texts(source: MemorySource) -> Any:
    """Names of tensors, which all batches share."""
    return pa.array(source.names, pa.string())


def memory_batch(found: Changes, rows: Rows, tensors: Any, schema: Any) -> Any:
    """The changes in a block of rows as an Arrow record batch."""
    columns = {
        "actor": found.owner,
        "time_ns": found.time_ns,
        "event": _words(events_of(found), EVENTS),
        "tensor": _coded(np.asarray(found.tensor, np.int32), tensors),
        "node": _unless(rows.node_id[found.node], found.node < 0),
        "delta_bytes": found.delta_bytes,
        "alive_bytes": found.alive_bytes,
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name]) for f in schema], schema=schema)


def actors_table(columns: dict[str, Any], manifest: str) -> Any:
    """actors.arrow: who the actors are, and their figures."""
    schema = pa.schema(ACTOR_FIELDS, metadata=about(manifest))
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def _words(codes: Any, words: tuple[str, ...], index: Any = np.int8) -> Any:
    """Codes as a dictionary column; negative codes are null."""
    return _coded(np.asarray(codes, index), pa.array(words, pa.string()))


def _coded(codes: Any, texts: Any) -> Any:
    """The same with the dictionary made already."""
    return pa.DictionaryArray.from_arrays(_unless(codes, codes < 0), texts, safe=False)


def _unless(values: Any, missing: Any) -> Any:
    """A column with nulls where a mask says so; columns are often full of them, or have none."""
    if not missing.any():
        return pa.array(values)
    if missing.all():
        return pa.nulls(len(values), pa.from_numpy_dtype(values.dtype))
    return pa.array(values, mask=missing)
