"""`et-convert stats`: figures of a workload: nodes, depth, durations, communication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from converters.commands import WorkloadInput
from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from converters.editing.files import Input


class Options(Command):
    """Count what is in the traces of all ranks together, or of each distinct trace."""

    input: WorkloadInput
    per_rank: Annotated[bool, "the figures of each distinct trace"] = False
    ranks: Annotated[str | None, 'only these ranks: "0-3,6"', "LIST"] = None
    top: Annotated[int, "rows of each table", "N", Option(least=0)] = 10
    json: Annotated[bool, "print the figures as JSON, with all rows"] = False


def run(options: Options) -> Iterator[str]:
    """Count trace by trace, then yield the figures of all together or of each."""
    import json

    from converters.editing.figures import as_lines, as_plain, figures_of, merged
    from converters.editing.files import read_input
    from converters.files import watched
    from et_sim.basics.units import format_ranks

    given = read_input(options.input, drop_dangling=True)
    ranks_of = _ranks_of_templates(given, options.ranks)
    parts = [
        (ranks, figures_of(given.traces[template]))
        for template, ranks in watched(ranks_of.items(), len(ranks_of), "traces")
    ]
    tables = [(ranks, merged([(figures, len(ranks))])) for ranks, figures in parts]
    if not options.per_rank:
        all_ranks = sorted(rank for ranks, _ in parts for rank in ranks)
        tables = [(all_ranks, merged((figures, len(ranks)) for ranks, figures in parts))]
    if options.json:
        content = [{"of_ranks": format_ranks(ranks), **as_plain(figures)} for ranks, figures in tables]
        whole = {"workload": options.input, "distinct_traces": len(parts), "figures": content}
        yield json.dumps(whole, indent=2, ensure_ascii=False)
        return
    for ranks, figures in tables:
        yield _title(given, ranks, len(parts), is_each=options.per_rank)
        yield from as_lines(figures, options.top)


def _title(given: Input, ranks: list[int], traces: int, *, is_each: bool) -> str:
    from et_sim.basics.units import format_ranks, plural

    if len(ranks) == 1 and (is_each or given.workload.ranks == 1):
        return given.workload.inputs[ranks[0]][0] if given.workload.has_file_per_rank else f"rank {ranks[0]}"
    if is_each:
        return f"ranks {format_ranks(ranks)}, together"
    return f"{given.workload.source}: {plural(len(ranks), 'rank')}, {plural(traces, 'distinct trace')}"


def _ranks_of_templates(given: Input, text: str | None) -> dict[int, list[int]]:
    """Return the chosen ranks by template, in the order of the first ranks."""
    import numpy as np

    from et_sim.basics.units import parse_ranks

    workload = given.workload
    chosen = np.arange(workload.ranks)
    if text is not None:
        chosen = np.unique(np.concatenate([np.asarray(piece) for piece in parse_ranks(text)]))
        if int(chosen[-1]) >= workload.ranks:
            raise UsageError(
                f"--ranks names rank {chosen[-1]}, and there are ranks 0 to {workload.ranks - 1}",
                remedy="correct --ranks",
            )
    of_rank = workload.template_of_rank[chosen]
    _, first = np.unique(of_rank, return_index=True)
    return {int(of_rank[at]): chosen[of_rank == of_rank[at]].tolist() for at in np.sort(first).tolist()}
