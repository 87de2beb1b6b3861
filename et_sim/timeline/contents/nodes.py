"""Rows of the timeline: the columns of timeline.arrow."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.engine.state.run import NONE
from et_sim.timeline.content import Block, Nullable, TableContent, Texts
from et_sim.timeline.node_columns import KIND_NAMES, LANE_NAMES
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.rows import (
    BEGIN,
    END_CAUSES,
    MESSAGE,
    START_CAUSES,
    TREATMENT_NAMES,
    Rows,
    TimelineSource,
)

PART_FIGURES = ("launch_ns", "arithmetic_ns", "traffic_ns")
PART_WORDS = ("bound", "peak", "efficiency", "level", "memory_efficiency")
REPLAYED = [TREATMENT_NAMES.index(treatment) for treatment in ("replayed", "defaulted")]
REPLAY = "replay"
KERNEL_FIGURES = ("compute_utilisation", "memory_utilisation", "operational_intensity")


# Columns of machines with rules for compute.
PARTS = (*PART_FIGURES, *PART_WORDS[1:])


def timeline_content(run: RecordedRun) -> TableContent:
    """Return timeline.arrow; its rows are measured on the way."""
    streams = () if run.measurement.source.stream_names else ("stream",)
    parts = () if run.measurement.has_rules else PARTS
    recorded = () if run.measurement.source.recorded_names else ("recorded_on",)
    blocks = _Blocks(run.measurement.source)
    return TableContent(map(blocks.block, run.measurement.blocks()), without=(*streams, *recorded, *parts))


class _Blocks:
    """Blocks of the table; columns shared by consecutive blocks are made once."""

    def __init__(self, source: TimelineSource) -> None:
        self._source = source
        self._at: Any = None
        self._shared: dict[str, Any] = {}

    def block(self, rows: Rows) -> Block:
        """Return the block of some rows."""
        if rows.at is not self._at:
            self._at, self._shared = rows.at, _shared(rows, self._source)
        never_ended, end_cause = rows.end_ns < 0, rows.end_cause
        if never_ended.any():
            end_cause = np.where(never_ended, np.int8(NONE), end_cause)
        columns = {
            **self._shared,
            "actor": rows.actor,
            "ready_ns": rows.ready_ns,
            "start_ns": rows.start_ns,
            "end_ns": rows.end_ns,
            "group": Texts(rows.group, self._source.group_names),
            "sequence": rows.sequence,
            "peer": rows.peer,
            "tag": rows.tag,
            "queued_ns": rows.queued_ns,
            "waiting_ns": rows.waiting_ns,
            "moving_ns": rows.moving_ns,
            "waits_for": rows.waits_for,
            "start_cause": Texts(rows.start_cause, START_CAUSES),
            "start_cause_node": Nullable(rows.start_cause_node, rows.start_cause == BEGIN),
            "end_cause": Texts(end_cause, END_CAUSES),
            "end_cause_actor": Nullable(rows.end_cause_actor, rows.end_cause != MESSAGE),
            "end_cause_node": Nullable(rows.end_cause_node, ~rows.has_end_node),
            **_utilisation(rows),
            **_figures_of_parts(rows),
        }
        return Block(columns, rows.actor, rows.start_ns, rows.end_ns)


def _shared(rows: Rows, source: TimelineSource) -> dict[str, Any]:
    """Return the columns of nodes that are independent of actors and durations."""
    streams, recorded = source.stream_names, source.recorded_names
    return {
        "node": rows.node_id,
        "name": Texts(rows.name, source.names),
        "kind": Texts(rows.kind, KIND_NAMES),
        "lane": Texts(rows.lane.view(np.int8), LANE_NAMES),
        **({"stream": Texts(rows.stream, streams)} if streams else {}),
        **({"recorded_on": Texts(rows.recorded_on, recorded)} if recorded else {}),
        "treatment": Texts(rows.treatment.astype(np.int8), TREATMENT_NAMES),
        "bytes": rows.bytes,
        "timed_by": _timed_by(rows, source),
        **_words_of_parts(rows),
    }


def _timed_by(rows: Rows, source: TimelineSource) -> Texts:
    """Return the model that timed a kernel, the library's choice for a collective, or `replay`."""
    is_replayed = np.isin(rows.treatment, REPLAYED)
    labels = rows.utilisation.timed_by if rows.utilisation is not None else None
    models = labels.texts[1:] if labels is not None else ()
    codes = np.where(is_replayed, 0, NONE).astype(np.int32)
    if labels is not None:
        codes = np.where(~is_replayed & (labels.codes > 0), labels.codes.astype(np.int32), codes)
    choices = source.library_choices
    if choices:
        chosen = source.choices_of(rows.at)
        codes = np.where(chosen > 0, chosen + len(models), codes)
    return Texts(codes.astype(np.int32), (REPLAY, *models, *choices[1:]))


def _nothing(rows: Rows, kind: type) -> Nullable:
    return Nullable(np.zeros(len(rows.actor), kind), np.ones(len(rows.actor), np.bool_))


def _figures_of_parts(rows: Rows) -> dict[str, Any]:
    """Return the parts of the times of kernels."""
    if rows.utilisation is None:
        return dict.fromkeys(PART_FIGURES, _nothing(rows, np.float64))
    return {name: getattr(rows.utilisation, name) for name in PART_FIGURES}


def _words_of_parts(rows: Rows) -> dict[str, Texts]:
    """Return the figures that set the times of kernels."""
    if rows.utilisation is None:
        return dict.fromkeys(PART_WORDS, Texts(np.full(len(rows.actor), NONE, np.int32), ()))
    words = {name: getattr(rows.utilisation, name) for name in PART_WORDS}
    return {name: Texts(word.codes.astype(np.int32) - 1, word.texts[1:]) for name, word in words.items()}


def _utilisation(rows: Rows) -> dict[str, Any]:
    """Return the utilisation of the machine by kernels; null for all other nodes."""
    used = rows.utilisation
    if used is None:
        figures = dict.fromkeys(KERNEL_FIGURES, _nothing(rows, np.float64))
        return {**figures, "memory_bound": _nothing(rows, np.bool_)}
    is_none = np.isnan(used.compute)
    columns = zip(KERNEL_FIGURES, (used.compute, used.memory, used.intensity), strict=True)
    columns_of_use = {name: Nullable(values, is_none) for name, values in columns}
    return {**columns_of_use, "memory_bound": Nullable(used.is_memory_bound, is_none)}
