"""The study of training iterations: `python docs/studies/iterations.py` writes the figures of iterations.md.

Published times of iterations on A100s beside simulated ones, with one machine and one set of options for
all. Nothing is fitted to the times that are predicted. Not here: calibration.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plots import Axis, Line, lines
from study_page import table, write_study

import et_sim
from et_sim.workloads import Model, Plan, make_training
from et_sim.workloads.models.model import Attention, FeedForward

FOLDER = Path(__file__).parent
PAGE, ROWS = FOLDER / "iterations.md", FOLDER / "iterations.json"
PICTURE = "iterations.svg"
MEGATRON, VTRAIN = "megatron_seqpar_table5", "vtrain_multi"
VTRAIN_NODE_GBPS = 100  # all that a node has to others, as the measurements' authors state
GPUS_OF_NODE = 8


@dataclass(frozen=True)
class Run:
    """An iteration that was measured."""

    label: str
    model: Model
    plan: Plan
    measured_s: float
    rail: str | None  # bandwidth of a GPU to other nodes, where it is not the machine's

    def predicted_s(self) -> float:
        """The iteration, simulated."""
        machine = f"a100-dgx-80gb:{self.plan.ranks}"
        network: dict[str, Any] | None = None
        if self.rail is not None and self.plan.ranks > GPUS_OF_NODE:
            nodes = self.plan.ranks // GPUS_OF_NODE
            network = {
                "topology": ["Switch", "Switch"],
                "npus_count": [GPUS_OF_NODE, nodes],
                "bandwidth": ["300GB/s", self.rail],
                "latency": ["250ns", "600ns"],
            }
        result = et_sim.simulate(make_training(self.model, self.plan), machine=machine, network=network)
        return result.makespan_ns / 1e9


def decoder(name: str, hidden: int, heads: int, layers: int, sequence: int, vocabulary: int) -> Model:
    """A GPT of these dimensions."""
    attention = Attention(heads, heads, hidden // heads, has_bias=True, has_output_bias=True)
    part = FeedForward(4 * hidden, is_gated=False, has_bias=True)
    return Model(
        name,
        "dimensions of the table",
        hidden,
        layers,
        vocabulary,
        sequence,
        attention,
        part,
        positions=sequence,
        is_tied=True,
        norm_vectors=2,
        has_dropout=True,
    )


def megatron(row: dict[str, Any]) -> Run:
    """A row of table 5 of Korthikanti et al."""
    chunks, is_full = row["interleave"], row["recompute"] == "full"
    plan = Plan(
        tensor=row["tp"],
        pipeline=row["pp"],
        data=row["dp"],
        batch=row["micro_batch"],
        micro_batches=row["global_batch"] // row["dp"] // row["micro_batch"],
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute="full" if is_full else "selective",
        sequence_parallel=row["tp_comm"] == "rs_ag",
        fused_attention=False,
        gradient_bytes=4,
    )
    model = decoder(row["model"], row["hidden"], row["heads"], row["layers"], row["seq_len"], 51_200)
    return Run(f"{row['model']}, {row['mode']}", model, plan, row["iteration_time_s"], None)


def vtrain(row: dict[str, Any]) -> Run:
    """A row of vTrain's measurements on several nodes."""
    plan = Plan(
        tensor=row["tp"],
        pipeline=row["pp"],
        data=row["dp"],
        batch=row["micro_batch"],
        micro_batches=row["global_batch"] // row["dp"] // row["micro_batch"],
        recompute="full",
        fused_attention=False,
        gradient_bytes=2,
        sum_bytes=2,
        bucket=10**9,
    )
    name = f"{row['params_B']:g}B, TP {row['tp']} x PP {row['pp']} x DP {row['dp']}, {row['micro_batch']}"
    model = decoder(name, row["hidden"], row["heads"], row["layers"], row["seq_len"], 50_257)
    rail = f"{VTRAIN_NODE_GBPS / GPUS_OF_NODE}GB/s"
    return Run(name, model, plan, row["iteration_time_s"], rail)


READERS = {MEGATRON: megatron, VTRAIN: vtrain}


def runs(name: str) -> list[Run]:
    """Of one of the two tables."""
    content = json.loads(ROWS.read_text(encoding="utf-8"))[name]
    return [READERS[name](dict(zip(content["columns"], row, strict=True))) for row in content["rows"]]


@dataclass(frozen=True)
class Errors:
    """How far predictions are from measurements."""

    ratios: tuple[float, ...]  # predicted by measured

    @property
    def mean(self) -> float:
        """Mean absolute percentage error."""
        return sum(abs(ratio - 1) for ratio in self.ratios) / len(self.ratios)

    @property
    def largest(self) -> float:
        """The largest one."""
        return max(abs(ratio - 1) for ratio in self.ratios)

    @property
    def middle(self) -> float:
        """The geometric mean of the ratios: what one factor could mend."""
        return math.exp(sum(map(math.log, self.ratios)) / len(self.ratios))

    @property
    def rest(self) -> float:
        """Mean absolute percentage error that is left when all are divided by that factor."""
        return Errors(tuple(ratio / self.middle for ratio in self.ratios)).mean


def results_table(measured: Sequence[Run], predicted: Sequence[float]) -> str:
    """Row by row."""
    rows = []
    for run, found in zip(measured, predicted, strict=True):
        times = (f"{run.measured_s:.2f}", f"{found:.2f}", f"{found / run.measured_s - 1:+.1%}")
        rows.append([run.label, str(run.plan.ranks), *times])
    return table(("iteration", "GPUs", "measured, s", "simulated, s", "difference"), rows)


def summary(errors: dict[str, Errors]) -> str:
    """The two tables' errors."""
    rows = [
        [
            name,
            str(len(one.ratios)),
            f"{one.mean:.1%}",
            f"{one.largest:.1%}",
            f"{one.middle - 1:+.1%}",
            f"{one.rest:.1%}",
        ]
        for name, one in errors.items()
    ]
    head = ("table", "iterations", "mean error", "largest", "all together", "mean error without that")
    return table(head, rows)


def main() -> None:
    """Simulate all rows and write the page."""
    texts, errors, series = {}, {}, []
    for name, title in ((MEGATRON, "Megatron-LM, table 5"), (VTRAIN, "vTrain, several nodes")):
        measured, predicted = runs(name), []
        for at, run in enumerate(measured, 1):
            predicted.append(run.predicted_s())
            sys.stderr.write(f"{title}: {at} of {len(measured)}\n")
        pairs = [(run.measured_s, found) for run, found in zip(measured, predicted, strict=True)]
        errors[title] = Errors(tuple(found / real for real, found in pairs))
        texts[name] = results_table(measured, predicted)
        series.append(Line(title, tuple(sorted(pairs))))
    texts["errors"] = summary(errors)
    longest = max(run.measured_s for name in READERS for run in runs(name))
    series.append(Line("as measured", ((1.0, 1.0), (longest, longest))))
    across, up = Axis("measured, s", is_log=True), Axis("simulated, s", is_log=True)
    picture = lines("Iterations on A100s, measured and simulated", across, up, series)
    write_study(PAGE, texts, {PICTURE: picture})


if __name__ == "__main__":
    main()
