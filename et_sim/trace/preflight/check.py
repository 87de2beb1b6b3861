"""All pre-flight checks of a workload, in the order in which their findings help most.

Findings that say the same of other ranks, groups or nodes: the first is told, the others are counted. Alike
are findings of one kind whose sentences differ in numbers only (ranks, nodes, tags, names of files), but for
sizes: messages of other sizes are another mistake. Not here: any check.

Not here: any check itself (`dependencies`, `messages`, `message_cycles`, `collectives`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from et_sim.basics.units import format_ranks, parse_ranks
from et_sim.trace.preflight.collectives import PLAIN_RULES, Rules, check_collectives
from et_sim.trace.preflight.dependencies import check_dependencies
from et_sim.trace.preflight.message_cycles import check_message_cycles
from et_sim.trace.preflight.messages import check_messages
from et_sim.trace.preflight.nodes import check_nodes
from et_sim.trace.preflight.problem import Problem, TemplateIndex, of_ranks
from et_sim.trace.workload import Workload

# Circles are told by their nodes, and few of them.
_APART = frozenset(("dependency-cycle", "message-circle", "collective-circle"))
# A number, unless it is (part of) a size: 1 MiB, 1048576 bytes, 1.5 KiB.
_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d+(?:\.\d+)?(?![\d.]*(?: (?:B|[KMGTPE]iB|bytes)\b|\d))")
# Ranks of a sentence: "rank 3", "ranks 0-3,6".
_RANKS = re.compile(r"\branks? #(?:[-,/]#)*")


def deduplicate(problems: list[Problem]) -> list[Problem]:
    """Every finding once, in the order of the first of its like."""
    found: dict[tuple[str, str, str], list[Problem]] = defaultdict(list)
    for at, problem in enumerate(problems):
        if problem.kind in _APART:
            found[problem.severity, problem.kind, str(at)].append(problem)
            continue
        shape = _RANKS.sub("ranks", _NUMBER.sub("#", problem.text))
        found[problem.severity, problem.kind, shape].append(problem)
    return [_merged(alike) for alike in found.values()]


def _merged(alike: list[Problem]) -> Problem:
    first, *others = alike
    if not others:
        return first
    listed = {rank for other in others for piece in _ranges(other.ranks) for rank in piece}
    where = f", on {of_ranks(listed)}" if listed else ""
    text = f"{first.text}; {len(others):,} more like it{where}"
    everyone = listed.union(*_ranges(first.ranks))
    return replace(first, text=text, ranks=format_ranks(everyone), like=len(others))


def _ranges(ranks: str) -> list[range]:
    return parse_ranks(ranks) if ranks else []


def find_problems(
    workload: Workload,
    *,
    ranks: int | None = None,
    groups: Mapping[str, tuple[int, ...]] | None = None,
    rules: Rules = PLAIN_RULES,
) -> list[Problem]:
    """What will break, or looks wrong, whatever machine it runs on; errors first, and like ones once.

    `ranks`: how many there should be (default: as many as the workload has). `groups`: members per
    communicator group; None means that they are not known, and members are taken to be the users.
    `rules`: what the machine's corrections make of collectives.
    """
    expected = workload.ranks if ranks is None else ranks
    index = TemplateIndex(workload)
    problems = [
        *_check_rank_count(workload, expected),
        *check_nodes(
            index,
            communicates=rules.communicates,
            is_broadcast_replayed=not rules.simulates_broadcast,
        ),
        *check_dependencies(index),
    ]
    if rules.communicates:
        problems += check_messages(index, expected)
        if not any(problem.severity == "error" for problem in problems):
            problems += check_message_cycles(index)
        problems += check_collectives(index, expected, groups, rules)
    return sorted(deduplicate(problems), key=lambda problem: problem.severity != "error")


def find_mismatches(workload: Workload, groups: Mapping[str, tuple[int, ...]], rules: Rules) -> list[Problem]:
    """Errors between ranks: messages and collectives that do not match. Cheap beside a simulation."""
    if not rules.communicates:
        return []
    index = TemplateIndex(workload)
    problems = check_messages(index, workload.ranks)
    problems += check_collectives(index, workload.ranks, groups, rules, with_order=False)
    return [problem for problem in deduplicate(problems) if problem.severity == "error"]


def _check_rank_count(workload: Workload, ranks: int) -> list[Problem]:
    if workload.ranks == ranks:
        return []
    who = f"0-{workload.ranks - 1}" if workload.ranks > 1 else "0"
    text = f"{workload.source}: the workload has {workload.ranks} ranks, and {ranks} are wanted"
    return [Problem("error", "rank-count", who, text, "give one trace per NPU of the machine")]
