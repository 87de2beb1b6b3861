"""The families of docs/accuracy.md whose band does not hold its share of rows, with known causes.

A cause belongs to families by the words of their names; families without one are listed as such.

Not here: which families are met (`fit_bands`), and the page (`accuracy`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fit_bands import Coverage

CAUSES = (
    (
        r"all-reduce on (A100|V100), other labs, from 64 MiB on",
        "the narrowest band that a run can state, 1.11, is wider than these errors: it has 2 % for "
        "repeated runs, 3 % for clocks and labs, and 2 % at least for a class. On A100 and from 64 MiB "
        "on, a lab differs from others by 1.1 %, but constants are fitted to sums of bytes and of halves "
        "together, and bytes take 2 to 7 % longer, so that other labs' times are shorter than predicted. "
        "With 1.1 % for labs and no least width, these two families are met, and two others are not "
        "(all-reduce on B200, reduce-scatter on A100, from 64 MiB on), so the floor stays.",
    ),
    (
        r"all-to-all on A100, other labs$",
        "one process posts the sends and receives of eight GPUs, and each takes 0.4 us there. The figure "
        "of 0.19 us is an estimate from another machine; no other run by one process on NVIDIA's GPUs was "
        "found. From 4 MiB on, the errors are below 10 %.",
    ),
    (
        r"all-to-all on A100, other labs, from",
        "the time of a byte falls with the size there, to 12 % less than predicted at 8 GiB. Constants "
        "are fitted to sizes up to 512 MiB of one lab, where they are 4 % too slow, and have one rate.",
    ),
    (
        r"collectives between nodes, (H100|H200|MI300X)$",
        "one other lab at most measured a network of the kind. Over RoCE it used another library (NCCL, "
        "RCCL), and the two are off by a factor of 2.1 either way if each gives the other its latency. "
        "EFA and TCPX have two labs each, so that a lab is judged by one other and by the spread of all "
        "kinds, which one table of Slingshot widens. The band of a run has the errors of both labs, and a "
        "width of 1.9 over EFA, 2.6 over TCPX and 5.5 over RoCE.",
    ),
    (
        r"cards or kind of network not stated$",
        "if the source of no table stated its network, and each lab has the same weight, 80 % of measured "
        "times lie between 0.8 and 4.9 times the predicted ones, from InfiniBand to EFA. No band of a "
        "factor of 2 holds these networks.",
    ),
)


def unmet_text(judged: Sequence[Coverage]) -> str:
    """Return a list of the families that are not met, with counts and causes."""
    left = [each for each in judged if each.is_met is False]
    lines = []
    for words, cause in CAUSES:
        some = [each for each in left if re.search(words, each.family)]
        left = [each for each in left if each not in some]
        if some:
            lines.append(f"- {'; '.join(map(_counts, some))}: {cause}")
    lines += [f"- {_counts(each)}: the cause is not known." for each in left]
    return "\n".join(lines)


def _counts(each: Coverage) -> str:
    least, most = each.expected
    rows = f"{each.inside} of {each.rows} rows, {least} to {most} expected"
    return f"{each.family} ({rows}, width {each.width:.2f})"
