"""In one sentence, why two runs differ: the part of a rank's time, and the operation, that changed most.

Not here: every change (`changes`).
"""

from __future__ import annotations

from et_sim.basics.units import format_ns
from et_sim.views.compare.changes import Comparison
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.profile_facts import scope_text
from et_sim.views.summary.rank_table import rank_count
from et_sim.views.text import percent


def why(found: Comparison) -> str:
    """The sentence, without a full stop."""
    before, after = found.makespans_ns
    if found.is_identical:
        return "every operation, group and rank took as long in both"
    text = "both take as long"
    if before != after:
        word = "longer" if after > before else "less"
        share = percent(before, after)
        text = f"B takes {format_ns(abs(after - before))} {word}{f' ({share})' if share else ''}"
    part, change = largest_part(found)
    if change:
        text += (
            f"; the average rank has {format_ns(abs(change))} {'more' if change > 0 else 'less'} of {part}"
        )
    if found.operations and found.operations[0].difference_ns:
        most = found.operations[0]
        kind, name, _ = most.name
        more = "more" if most.difference_ns > 0 else "less"
        named = f'{kind.replace("_", " ")} "{name}"' if name else kind.replace("_", " ")
        text += f"; {named} takes {format_ns(abs(most.difference_ns))} {more}, over all ranks"
    return text


def scopes(found: Comparison) -> list[tuple[str, str]]:
    """What the figures of the runs include, and what they leave out: once, if that is the same."""
    a, b = (scope_text(run.summary.get("scope")) for run in (found.a, found.b))
    if a == b:
        return [("includes", a)] if a else []
    return [(f"{name} includes", text) for name, text in (("A", a), ("B", b)) if text]


def largest_part(found: Comparison) -> tuple[str, int]:
    """The part of the average rank's time that changed most, and by how many nanoseconds."""
    of_each = [averages(run) for run in (found.a, found.b)]
    changes = {part.text: of_each[1][part.figure] - of_each[0][part.figure] for part in PARTS}
    name = max(changes, key=lambda one: abs(changes[one]))
    return name, changes[name]


def averages(run: RunDirectory) -> dict[str, int]:
    """Every part of the average rank's time, in whole nanoseconds."""
    sums = dict.fromkeys((part.figure for part in PARTS), 0)
    for entry in run.summary["per_rank"]:
        count = rank_count(entry["ranks"])
        for part in PARTS:
            sums[part.figure] += count * entry[part.figure]
    return {name: total // max(run.summary["ranks"], 1) for name, total in sums.items()}
