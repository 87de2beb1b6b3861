"""`et-convert expand`: a workload manifest to one trace file per rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from converters.commands import MOST_FILES, JsonReport, Output
from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell

if TYPE_CHECKING:
    from et_sim.trace import Workload


class Options(Command):
    """Write the trace of every rank that a workload manifest describes, with ranks as peers and numbered
    groups, which PREFIX.groups.json lists: files that other readers understand too."""

    manifest: Annotated[Path, "a .workload.json file", "MANIFEST"]
    output: Output
    ranks: Annotated[str | None, f'only these: "0-63,128"; at most {MOST_FILES:,} (default: all)'] = None
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Read the manifest, write the files of the chosen ranks, and report."""
    import json

    from converters.editing.expanding import Files
    from converters.files import profile_option, write_files
    from et_sim.basics.units import format_ranks
    from et_sim.trace import read_manifest
    from et_sim.trace.disk import read_unpacked

    workload = read_manifest(options.manifest)
    ranks = _chosen(options.ranks, workload.ranks)
    files = Files(
        workload, [read_unpacked(Path(template.source)) for template in workload.templates], options.output
    )
    whole = options.output if len(ranks) == workload.ranks else None
    paths, contents = files.of_ranks(ranks)
    outputs, groups = paths[: len(ranks)], "".join(map(str, paths[len(ranks) :]))
    write_files([Path(path) for path, _ in workload.inputs], paths, contents, whole)
    if options.json:
        content = {
            "manifest": str(options.manifest),
            "prefix": options.output,
            "ranks": format_ranks(ranks),
            "files": len(outputs),
            "groups": groups or None,
        }
        yield json.dumps(content, indent=2, ensure_ascii=False)
        return
    yield f"{options.manifest} -> {_listed([str(path) for path in outputs])}"
    if groups:
        yield f"  groups         {_group_count(workload)} in {groups}"
    if len(ranks) < workload.ranks:
        yield f"  not written    {workload.ranks - len(ranks)} of {workload.ranks} ranks"
    else:
        with_groups = f" --groups {in_shell(groups)}" if groups else ""
        machine = f"{with_groups} --system FILE --network FILE{profile_option(workload)}"
        yield f"  run with       et-sim run {in_shell(options.output)}{machine}"


def _chosen(text: str | None, count: int) -> list[int]:
    """Return the ranks to write, ascending."""
    from et_sim.basics.units import parse_ranks

    pieces = parse_ranks(text) if text is not None else [range(count)]
    beyond = max(piece[-1] for piece in pieces)
    if beyond >= count:
        raise UsageError(
            f"--ranks names rank {beyond}, and there are ranks 0 to {count - 1}", remedy="correct --ranks"
        )
    if sum(map(len, pieces)) > MOST_FILES:
        raise UsageError(
            f"{sum(map(len, pieces)):,} ranks would be as many files",
            remedy=f"write at most {MOST_FILES:,} at a time: choose them with --ranks 0-{MOST_FILES - 1}",
        )
    return sorted({rank for piece in pieces for rank in piece})


def _listed(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} to {paths[-1]} ({len(paths)})"


def _group_count(workload: Workload) -> str:
    count = sum(rule.number(workload.ranks) for rule in workload.group_rules.values())
    names = ", ".join(f'"{name}"' for name in workload.group_rules)
    return f"{count} of {'rule' if len(workload.group_rules) == 1 else 'rules'} {names}"
