"""The columns of a sweep's table besides its axes; the tables of runs are in `registry`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

ABOUT = "et-sim.sweep"  # metadata: the version, how many points there are, and the axes
NUMBER = "point"
TABLE, TIMES = "sweep", "times"
FILES: Mapping[str, str] = MappingProxyType({TABLE: "sweep.arrow", TIMES: "times.arrow"})
JOURNAL = "journal.jsonl"  # finished points, from which the tables are made
RUNS = "runs"  # the folder of whole runs


class Best(StrEnum):
    """The wanted extreme of a figure."""

    LEAST = "least"
    MOST = "most"


class Figure(Struct, frozen=True):
    """A column; kinds are names of Arrow types."""

    name: str
    kind: str
    meaning: str
    best: Best | None = None  # None: not an objective of a search


DESCRIPTION = "description"  # in the metadata: the name of the sweep's file
MADE_OF = "made_of"
SEARCH = "search"  # in the metadata: the objective of the search, and the best points
# For runs whose workload has its tokens and model operations (`et_sim.trace.workload`).
OF_STEPS = (
    Figure("tokens_per_s", "float64", "tokens of the step by its makespan", Best.MOST),
    Figure(
        "tokens_per_s_per_rank",
        "float64",
        "the same by the number of ranks, each of which is an NPU",
        Best.MOST,
    ),
    Figure(
        "tflops_per_rank",
        "float64",
        "operations that the model needs for the step, by its makespan and the number of ranks, in 10^12 per "
        "second. Counted as in the papers of PaLM and Megatron: 6 for each token and weight that it is "
        "multiplied with, and 12 x layers x width x sequence for each token's attention, which causal masks "
        "do not halve; recomputed operations do not count",
        Best.MOST,
    ),
    Figure(
        "mfu",
        "float64",
        "model FLOPs utilisation, from 0 to 1: `tflops_per_rank` by the dense peak that the description of "
        "the machine gives for the datatype of the products; null where it gives none",
        Best.MOST,
    ),
    Figure(
        "hfu",
        "float64",
        "hardware FLOPs utilisation: as `mfu`, of the operations that kernels execute: what is recomputed "
        "counts (activations, and scores of fused attention on the way back), masked scores that they skip "
        "do not, which `mfu` has",
        Best.MOST,
    ),
    Figure(
        "price_per_million_tokens",
        "float64",
        "what the step costs by its tokens, in the currency that the machine names; null where it has none",
        Best.LEAST,
    ),
    Figure(
        "joules_per_million_tokens",
        "float64",
        "the energy of the step by its tokens; null where the machine gives no power",
        Best.LEAST,
    ),
)
FIGURES = (
    Figure("status", "string", "complete, stalled, out of memory, or refused: the inputs cannot be used"),
    Figure("makespan_ns", "int64", "when the last rank finished; null unless complete", Best.LEAST),
    Figure("low_ns", "int64", "where the band of the makespan begins; null where the machine states none"),
    Figure("high_ns", "int64", "where it ends"),
    Figure(MADE_OF, "string", "what the makespan consists of, as JSON: bands of ratios follow from it"),
    Figure("exposed_comm_ns", "int64", "exposed communication of the rank that has most of it", Best.LEAST),
    Figure("bottleneck", "string", "what most of the time of all ranks goes to"),
    Figure("bottleneck_share", "float64", "how much of their time that is"),
    Figure("busiest_links", "string", "tier of the link with the most to carry for its bandwidth"),
    Figure("busiest_links_used", "float64", "how much of that link's bandwidth is used over the run"),
    Figure(
        "peak_memory_bytes",
        "int64",
        "the most local memory in use on any rank; null unless tracked",
        Best.LEAST,
    ),
    Figure("ranks", "int64", "ranks of the workload", Best.LEAST),
    Figure("joules", "float64", "energy that the run takes; null without power figures", Best.LEAST),
    Figure("price", "float64", "what the run costs; null without a price", Best.LEAST),
    Figure("currency", "string", "what prices are in; null where there are none"),
    *OF_STEPS,
    Figure("error", "string", "why the point is not complete"),
    Figure("warnings", "string", "what the run warns of"),
    Figure("digest", "string", "of all inputs' contents and of the program"),
)
# Objectives of searches, and figures of constraints.
OBJECTIVES: Mapping[str, Best] = MappingProxyType(
    {figure.name: figure.best for figure in FIGURES if figure.best}
)
