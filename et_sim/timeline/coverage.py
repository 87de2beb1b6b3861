"""Coverage: how much of a run was modelled, replayed, defaulted or instant, and what was moved.

The table that keeps a result honest: it is counted from what actually ran, not from intentions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from et_sim.timeline.rows import COMMUNICATION_KINDS, KIND_NAMES, TREATMENT_NAMES, Rows
from et_sim.trace.process_groups import count_metadata
from et_sim.trace.workload import Workload

IS_COMMUNICATION = np.isin(KIND_NAMES, COMMUNICATION_KINDS)
AS_RECORDED = slice(TREATMENT_NAMES.index("replayed"), TREATMENT_NAMES.index("defaulted") + 1)


@dataclass(slots=True)
class CoverageCounter:
    """Adds up blocks of rows; every row counts once per rank its actor stands for."""

    ranks_of_actor: Any
    names_tensors: Any  # per row of the plan's table of nodes; None: memory is not tracked
    nodes: Any = field(default_factory=lambda: np.zeros((len(TREATMENT_NAMES), len(KIND_NAMES)), np.int64))
    bytes: Any = field(default_factory=lambda: np.zeros(len(KIND_NAMES), np.int64))
    without_tensors: int = 0
    timed_by: dict[str, int] = field(default_factory=dict)  # kernels by the model that timed them

    def add(self, rows: Rows) -> None:
        """Count a block."""
        weight = self.ranks_of_actor[rows.actor]
        if len(weight) and (weight == weight[0]).all():
            places = rows.treatment * np.int64(len(KIND_NAMES)) + rows.kind
            counted = np.bincount(places, minlength=self.nodes.size).reshape(self.nodes.shape)
            self.nodes += counted * weight[0]
            for kind in np.flatnonzero(counted.sum(axis=0)):
                self.bytes[kind] += rows.bytes[rows.kind == kind].sum() * weight[0]
        else:
            np.add.at(self.nodes, (rows.treatment, rows.kind), weight)
            np.add.at(self.bytes, rows.kind, weight * rows.bytes)
        self._count_models(rows, weight)
        if self.names_tensors is not None:
            self.without_tensors += int(weight[~self.names_tensors[rows.at]].sum())

    def _count_models(self, rows: Rows, weight: Any) -> None:
        """Which models timed kernels."""
        if rows.utilisation is None:
            return
        labels = rows.utilisation.timed_by
        counts = np.zeros(len(labels.texts), np.int64)
        np.add.at(counts, labels.codes, weight)
        for text, count in zip(labels.texts[1:], counts[1:].tolist(), strict=True):
            if count:
                self.timed_by[text] = self.timed_by.get(text, 0) + count

    def as_dict(self, workload: Workload, total_nodes: int) -> dict[str, Any]:
        """The coverage part of the summary."""
        return {
            "nodes": total_nodes,
            "executed": int(self.nodes.sum()),
            **{name: int(self.nodes[code].sum()) for code, name in enumerate(TREATMENT_NAMES)},
            "not_executed": total_nodes - int(self.nodes.sum()),
            "timed_by": dict(sorted(self.timed_by.items())),
            "nodes_by_kind": _nonzero(self.nodes.sum(axis=0)),
            "bytes_by_kind": _nonzero(self.bytes),
            "replayed_communication": int(self.nodes[AS_RECORDED, IS_COMMUNICATION].sum()),
            "without_tensors": None if self.names_tensors is None else self.without_tensors,
            "ignored_attributes": _ignored_attributes(workload, self.names_tensors is not None),
            "ignored_metadata": _ignored_metadata(workload),
        }


def _nonzero(of_kind: Any) -> dict[str, int]:
    return {name: int(of_kind[code]) for code, name in enumerate(KIND_NAMES) if of_kind[code]}


def _ranks_of_template(workload: Workload) -> Any:
    return np.bincount(workload.template_of_rank, minlength=len(workload.templates))


def _ignored_metadata(workload: Workload) -> int:
    """METADATA nodes that describe no process groups, over all ranks."""
    counts = np.array([count_metadata(trace)[1] for trace in workload.templates], np.int64)
    return int(counts @ _ranks_of_template(workload))


def _ignored_attributes(workload: Workload, tracks_memory: bool) -> dict[str, int]:
    """Attributes that no model reads: name -> nodes that carry it, over all ranks."""
    ranks_of_template = _ranks_of_template(workload)
    total: dict[str, int] = {}
    for ranks, trace in zip(ranks_of_template, workload.templates, strict=True):
        for name, count in trace.ignored_attributes.items():
            total[name] = total.get(name, 0) + count * int(ranks)
        if not tracks_memory and len(trace.tensors):
            outputs = int(trace.tensors.is_output.sum())
            for name, count in (("inputs", len(trace.tensors) - outputs), ("outputs", outputs)):
                total[name] = total.get(name, 0) + count * int(ranks)
    return dict(sorted(total.items()))
