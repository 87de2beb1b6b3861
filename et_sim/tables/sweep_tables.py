"""The columns of a sweep's table besides its axes; the tables of runs are in `registry`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from et_sim.tables.declaration import declared

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


class SweepColumn(Struct, frozen=True):
    """A column; kinds are names of Arrow types."""

    name: str
    kind: str
    meaning: str
    best: Best | None = None  # None: not an objective of a search


def _figures(text: str) -> tuple[SweepColumn, ...]:
    """Return the figures that a text declares; a note states which extreme is best."""
    return tuple(
        SweepColumn(name, kind, meaning, Best(note) if note else None)
        for name, kind, _, note, meaning in declared(text)
    )


DESCRIPTION = "description"  # in the metadata: the name of the sweep's file
BASE = "base"  # in the metadata: the run that axes change, as the description states it
MADE_OF = "made_of"
SEARCH = "search"  # in the metadata: the objective of the search, and the best points
# For runs whose workload has its tokens and model operations (`et_sim.trace.workload`).
OF_STEPS = _figures("""
    tokens_per_s float64 (most): tokens of the step by its makespan
    tokens_per_s_per_rank float64 (most): the same by the number of ranks, each of which is an NPU
    tflops_per_rank float64 (most): operations that the model needs for the step, by its makespan and the
        number of ranks, in 10^12 per second. Counted as in the papers of PaLM and Megatron: 6 for each token
        and weight that it is multiplied with, and 12 x layers x width x sequence for each token's attention,
        which causal masks do not halve; recomputed operations do not count
    mfu float64 (most): model FLOPs utilisation, from 0 to 1: `tflops_per_rank` by the dense peak that the
        description of the machine gives for the datatype of the products; null where it gives none
    hfu float64 (most): hardware FLOPs utilisation: as `mfu`, of the operations that kernels execute: what is
        recomputed counts (activations, and scores of fused attention on the way back), masked scores that
        they skip do not, which `mfu` has
    price_per_million_tokens float64 (least): what the step costs by its tokens, or serving by its
        output tokens, in the currency that the machine names; null where it has none
    joules_per_million_tokens float64 (least): the energy of the step by its tokens, or of serving by
        its output tokens; null where the machine gives no power
""")
# For points with samples of the step.
OF_SAMPLES = _figures("""
    mean_ns float64 (least): the mean of the samples of the step, whose times vary
    p50_ns float64 (least): the time that half of the samples do not exceed
    p99_ns float64 (least): the same for 99 % of them
""")
# For points with months of a long job.
OF_MONTHS = _figures("""
    goodput float64 (most): time that kept steps would take on the healthy machine, by the time on the clock;
        the mean over months
    kept_tokens float64 (most): tokens of the kept steps of a month, in the mean
    price_per_million_kept_tokens float64 (least): the price of GPUs and spares of a month by these tokens;
        null without a price
    finish_days float64 (least): days until the tokens of the job are processed, in the mean; null without
        such a number
""")
# For points that serve requests.
OF_SERVING = _figures("""
    output_tokens_per_s_per_rank float64 (most): output tokens of all requests, by the time from the first
        arrival to the last token, and by the NPUs of the replicas
    tokens_per_s_per_user float64 (most): tokens that a request gets in a second after its first one: 1 s by
        the mean time per output token
    requests_per_s float64 (most): requests by the time from the first arrival to the last token
    good_share float64 (most): share of requests that meet `ttft` and `tpot`; null without such limits
    keeps_up int64 (most): 0 if requests pile up, so that longer traffic would have longer times; else 1
    ttft_p50_ns int64 (least): time to the first token that half of the requests do not exceed
    ttft_p99_ns int64 (least): the same for 99 % of them
    tpot_p50_ns int64 (least): time per output token that half of the requests do not exceed
    tpot_p99_ns int64 (least): the same for 99 % of them
""")
FIGURES = (
    *_figures("""
        status string: complete, stalled, out of memory, or refused: the inputs cannot be used
        makespan_ns int64 (least): when the last rank finished; null unless complete
        low_ns int64: where the band of the makespan begins; null where the machine states none
        high_ns int64: where it ends
        made_of string: what the makespan consists of, as JSON: bands of ratios follow from it
        exposed_comm_ns int64 (least): exposed communication of the rank that has most of it
        bottleneck string: what most of the time of all ranks goes to
        bottleneck_share float64: how much of their time that is
        busiest_links string: tier of the link with the most to carry for its bandwidth
        busiest_links_used float64: how much of that link's bandwidth is used over the run
        peak_memory_bytes int64 (least): the most local memory in use on any rank; null unless tracked
        ranks int64 (least): ranks of the workload
        joules float64 (least): energy that the run takes; null without power figures
        price float64 (least): what the run costs; null without a price
        currency string: what prices are in; null where there are none
    """),
    *OF_STEPS,
    *OF_SAMPLES,
    *OF_MONTHS,
    *OF_SERVING,
    *_figures("""
        error string: why the point is not complete
        warnings string: what the run warns of
        digest string: of all inputs' contents and of the program
    """),
)
# Objectives of searches, and figures of constraints.
OBJECTIVES: Mapping[str, Best] = MappingProxyType(
    {figure.name: figure.best for figure in FIGURES if figure.best}
)
