"""`et-convert scale`: a workload of few ranks to one of many."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.commands.expand import MOST_FILES
from converters.editing.options import add_output_options
from et_sim.errors import UsageError

if TYPE_CHECKING:
    from converters.editing.group_rules import GroupRules
    from converters.editing.growth import Growth
    from converters.editing.scaling import Scaled
    from converters.report import Converted
    from et_sim.trace import Workload


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "scale",
        help="a workload of few ranks to one of many",
        description="Let many ranks do what few were recorded to do: as replicas, or members of groups."
        " Writes PREFIX.workload.json and its templates, which stay few and small.",
    )
    add_output_options(parser)
    parser.add_argument(
        "--from",
        dest="old_plan",
        metavar="PLAN",
        help="how the ranks of the input are spread, as in tp=2,pp=2,dp=2 (other axes have one place)",
    )
    parser.add_argument(
        "--to", dest="new_plan", metavar="PLAN", help="what grows, as in dp=64; other axes stay as they are"
    )
    parser.add_argument(
        "--order",
        metavar="AXES",
        help="how ranks are counted, the innermost axis first (default: tp-cp-ep-dp-pp, as Megatron does)",
    )
    parser.add_argument("--replicas", type=int, metavar="R", help="so many copies of everything (default: 1)")
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="let a group, and all that are like it, have SIZE members; may be given several times",
    )
    parser.add_argument(
        "--keep-groups",
        action="store_true",
        help='let collectives of all ranks stay among the ranks of a replica (group "replica")',
    )
    parser.add_argument("--groups", metavar="FILE", type=Path, help="the groups file of the input")
    parser.add_argument(
        "--expand", action="store_true", help="write PREFIX.0.et, PREFIX.1.et, … instead of a manifest"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Iterator[str]:
    """Find the rules of groups, let them grow, write, report."""
    from converters.editing.inputs import read_input
    from converters.editing.outputs import report_lines
    from converters.editing.scaling import scale

    grow = _by_plan if options.old_plan or options.new_plan or options.order else _by_groups
    _refuse_both(options)
    given = read_input(options.input)
    families, growth = grow(options, given.workload)
    if options.expand and growth.ranks > MOST_FILES:
        raise UsageError(
            f"{growth.ranks:,} ranks would be as many files",
            remedy=f"leave out --expand (at most {MOST_FILES:,} files are written)",
        )
    scaled = scale(given, families, growth)
    conversions, what = _write(options, scaled)
    remarks = [*given.workload.notices, *_remarks(growth, scaled, families)]
    yield from report_lines(conversions, remarks, as_json=options.json, ranks=growth.ranks)
    if not options.json:
        yield f"run with: et-sim run {what}"


def _refuse_both(options: argparse.Namespace) -> None:
    """Growth is said by plans, or by groups and replicas."""
    by_plan = options.old_plan is not None and options.new_plan is not None
    is_other = bool(options.group) or options.replicas is not None or options.keep_groups
    if by_plan and is_other:
        raise UsageError(
            "--from and --to say how to scale, and so do --group, --replicas or --keep-groups",
            remedy="give plans, or the others",
        )
    if not by_plan and any((options.old_plan, options.new_plan, options.order)):
        raise UsageError(
            "one of --from, --to and --order is given without the others",
            remedy="give the old and the new plan: --from tp=2,pp=2,dp=2 --to dp=64",
        )
    if not by_plan and options.replicas is not None and options.replicas < 1:
        raise UsageError(f"--replicas is {options.replicas}", remedy="give a whole number, 1 or more")
    if not by_plan and not options.group and options.replicas in (None, 1):
        raise UsageError(
            "nothing says how to scale",
            remedy="give --from PLAN --to PLAN, --replicas R or --group NAME=SIZE",
        )


def _by_plan(options: argparse.Namespace, workload: Workload) -> tuple[GroupRules, Growth]:
    """Axes of a plan grow, and groups with them."""
    from converters.editing.group_rules import find_group_rules, uses_all_ranks
    from converters.editing.groups import Groups, read_groups_file
    from converters.editing.growth import Growth
    from converters.editing.plans import ORDER, read_change

    change = read_change(options.old_plan, options.new_plan, options.order or ORDER)
    if change.ranks != workload.ranks:
        raise UsageError(
            f"--from {options.old_plan} are {change.ranks:,} ranks, and there are {workload.ranks:,}",
            place=workload.source,
            remedy="give every axis that has several places",
        )
    groups = Groups(workload, read_groups_file(options.groups))
    world = change.all_ranks if uses_all_ranks(workload) else ""
    families = find_group_rules(workload, groups, all_ranks=world, plan=change)
    growth = Growth(workload.ranks, families.rules, workload.source)
    rules = {name: change.grown(rule, f"group {name}")[1] for name, rule in families.rules.items()}
    growth.spread(change.steps, rules)
    return families, growth


def _by_groups(options: argparse.Namespace, workload: Workload) -> tuple[GroupRules, Growth]:
    """Groups grow by name, and everything is copied."""
    from converters.editing.group_rules import find_group_rules
    from converters.editing.groups import Groups, read_groups_file
    from converters.editing.growth import Growth

    wanted = [_wanted(text) for text in options.group]
    groups = Groups(workload, read_groups_file(options.groups))
    families = find_group_rules(workload, groups, all_ranks="replica" if options.keep_groups else "")
    growth = Growth(workload.ranks, families.rules, workload.source)
    for name, size in wanted:
        growth.grow(families.alike(name, workload.source), size)
    growth.replicate(options.replicas or 1)
    return families, growth


def _wanted(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not equals or not size.isdecimal() or not name:
        raise UsageError(f"--group is {text!r}", remedy="give the group and its new size: --group data=64")
    return name, int(size)


def _write(options: argparse.Namespace, scaled: Scaled) -> tuple[list[Converted], str]:
    """Write all files; returns what to report, and what to give to a run."""
    from converters.editing.expanding import Files
    from converters.editing.outputs import decoded
    from converters.files import profile_option, refuse_overwriting, trace_path, watched
    from converters.records import Dropped
    from converters.report import Converted, make_report
    from et_sim.trace.disk import replace_all
    from et_sim.trace.manifest import ENDING, manifest_files

    workload, prefix = scaled.workload, options.output.removesuffix(ENDING)
    inputs = [Path(path) for path, _ in workload.inputs]
    groups: list[tuple[Path, bytes]] = []
    if options.expand:
        traces = decoded(zip(scaled.contents, map(str, range(len(scaled.contents))), strict=True))
        files = Files(replace(workload, templates=tuple(traces)), scaled.contents, prefix)
        groups = files.groups()
        of_rank = workload.template_of_rank.tolist()
        entries = [(template, str(trace_path(prefix, rank))) for rank, template in enumerate(of_rank)]
        paths = [*(Path(path) for _, path in entries), *(path for path, _ in groups)]
        refuse_overwriting(inputs, paths)
        replace_all(
            watched(
                (one for part in (files.of_ranks(range(len(of_rank))), groups) for one in part), len(paths)
            )
        )
    else:
        listed = manifest_files(workload, scaled.contents, f"{prefix}{ENDING}")
        refuse_overwriting(inputs, [path for path, _ in listed])
        place_of = {content: str(path) for path, content in listed[1:]}
        entries = [(number, place_of[content]) for number, content in enumerate(scaled.contents)]
        traces = decoded((scaled.contents[number], path) for number, path in entries)
        replace_all(watched([*listed[1:], listed[0]], len(listed)))
    reports = [make_report(one, Dropped(), notes) for one, notes in zip(traces, scaled.notes, strict=True)]
    conversions = []
    for number, report in enumerate(reports):
        outputs = tuple(dict.fromkeys(path for template, path in entries if template == number))
        conversions.append(Converted(workload.templates[number].source, "scaled", outputs, report))
    named = prefix if options.expand else f"{prefix}{ENDING}"
    machine = f" --groups {groups[0][0]}" if groups else ""
    machine += " --system FILE --network FILE" + (profile_option(workload) if options.expand else "")
    return conversions, f"{named}{machine}"


def _remarks(growth: Growth, scaled: Scaled, families: GroupRules) -> Iterator[str]:
    """How ranks are numbered, which groups grew, and whether copies know each other."""
    from converters.editing.group_rules import uses_all_ranks
    from et_sim.units import plural

    templates = plural(len(set(scaled.contents)), "template")
    yield f"{plural(growth.old_ranks, 'rank')} became {growth.ranks:,}, with {templates}"
    for step in growth.steps:
        if step.factor == 1:
            continue
        why = f"group {step.group} grows" if step.group else "replicas"
        yield f"{why}: every {plural(step.block, 'rank')} {step.factor:,} times, one copy behind the other"
        if step.rule is not None and step.rule.count == 1:
            yield f"{step.group} had one place, so that the input has nothing of what is exchanged along it"
    for name, rule in growth.rules.items():
        old = growth.old_rules[name]
        grew = (
            f"{old.count:,} members became {rule.count:,}"
            if rule.count != old.count
            else f"{rule.count:,} members"
        )
        yield f"group {name}: {grew}, {rule.apart}"
    grown = any(rule.count != growth.old_rules[name].count for name, rule in growth.rules.items())
    spans_all = uses_all_ranks(scaled.workload) and not families.renames_all_ranks
    if growth.factor > 1 and not grown and not spans_all:
        yield "no collective spans the replicas: they are independent jobs"
