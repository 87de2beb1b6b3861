"""`et-convert scale`: a workload of few ranks to one of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import structs
from msgspec.structs import replace

from converters.commands import MOST_FILES, EditedOutput, JsonReport, WorkloadInput
from et_sim.basics.declared_options import Command, Count, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell
from et_sim.basics.units import parse_bytes, plural

if TYPE_CHECKING:
    from converters.editing.files import Input
    from converters.editing.gradients import Gradients
    from converters.editing.groups import GroupRules
    from converters.editing.growth import Growth
    from converters.editing.scaling import Scaled
    from converters.report import Converted
    from et_sim.trace import GroupRule

    _Plan = tuple[Input, GroupRules, Growth, GroupRule | None]  # the last: new replicas

_BUCKET = 25 << 20


class Options(Command):
    """Scale a workload of few ranks to many, as replicas or as members of larger groups. Writes
    PREFIX.workload.json and its templates, which stay few and small.
    """

    input: WorkloadInput
    output: EditedOutput
    old_plan: Annotated[
        str | None,
        "plan of the input, as in tp=2,pp=2,dp=2 (other axes have size 1)",
        "PLAN",
        Option("--from"),
    ] = None
    new_plan: Annotated[
        str | None,
        "axes that grow, as in dp=64; others keep their size (without --from, the input is one replica)",
        "PLAN",
        Option("--to"),
    ] = None
    order: Annotated[
        str | None,
        "order of axes in rank numbers, innermost first (default: tp-cp-ep-dp-pp, as in Megatron)",
        "AXES",
    ] = None
    replicas: Annotated[Count, "number of copies of the whole workload (default: 1)", "R"] = None
    group: Annotated[
        Sequence[str],
        "new size of a group and of all similar groups; may be given several times",
        "NAME=SIZE",
    ] = ()
    keep_groups: Annotated[
        bool, 'restrict collectives of all ranks to the ranks of a replica (group "replica")'
    ] = False
    rank: Annotated[
        int | None,
        "number of the recorded rank in --from, if one rank represents all (default: from its metadata)",
        "R",
    ] = None
    gradients: Annotated[
        int | None,
        Option(parse=parse_bytes),
        "bytes of gradients of a rank, which replicas reduce in each iteration while its backward pass"
        " makes them; 0: none",
        "SIZE",
    ] = None
    bucket: Annotated[
        int | None,
        Option(parse=parse_bytes, least=1),
        "bytes of one such all-reduce (default: 25MiB)",
        "SIZE",
    ] = None
    micro_batches: Annotated[
        Count,
        "equal backward passes in an iteration, the last of which completes the gradients (default: 1)",
        "N",
    ] = None
    groups: Annotated[Path | None, "the groups file of the input", "FILE"] = None
    expand: Annotated[bool, "write PREFIX.0.et, PREFIX.1.et, … instead of a manifest"] = False
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Find the rules of groups, grow them, write the files, and report."""
    from converters.editing.files import read_input
    from converters.editing.scaling import scale
    from converters.report import report_lines

    _refuse_both(options)
    given = read_input(options.input)
    given, families, growth, replicas = (_by_plan if options.old_plan else _by_groups)(options, given)
    gradients = _gradients(options, given, growth, replicas)
    if options.expand and growth.ranks > MOST_FILES:
        raise UsageError(
            f"{growth.ranks:,} ranks would be as many files",
            remedy=f"leave out --expand (at most {MOST_FILES:,} files are written)",
        )
    scaled = scale(given, families, growth, gradients)
    conversions, inputs = _write(options, scaled)
    remarks = [*given.workload.notices, *_remarks(growth, scaled, families, gradients)]
    yield from report_lines(conversions, remarks, as_json=options.json, ranks=growth.ranks)
    if not options.json:
        yield f"run with: et-sim run {inputs}"


def _refuse_both(options: Options) -> None:
    """Refuse a combination of a plan with groups or replicas, or neither."""
    by_plan = options.old_plan is not None or options.new_plan is not None
    is_other = bool(options.group) or options.replicas is not None or options.keep_groups
    if by_plan and is_other:
        raise UsageError(
            "--from and --to cannot be combined with --group, --replicas or --keep-groups",
            remedy="give plans, or the others",
        )
    if options.old_plan is None and (options.order is not None or options.rank is not None):
        raise UsageError(
            f"{'--order' if options.order is not None else '--rank'} is given without --from",
            remedy="give the plan of the input: --from tp=2,pp=2,dp=2",
        )
    if not by_plan and not options.group and options.replicas in (None, 1):
        raise UsageError(
            "no growth is given",
            remedy="give --from PLAN --to PLAN, --replicas R or --group NAME=SIZE",
        )


def _by_plan(options: Options, given: Input) -> _Plan:
    """Return the growth along the axes of a plan."""
    import numpy as np

    from converters.editing.groups import WorkloadGroups, find_group_rules, read_groups_file, uses_all_ranks
    from converters.editing.growth import Growth
    from converters.editing.plans import ORDER, read_change, read_role

    old_plan = options.old_plan or ""
    new_plan = old_plan if options.new_plan is None else options.new_plan
    change = read_change(old_plan, new_plan, options.order or ORDER)
    workload, role = given.workload, None
    if workload.ranks == 1 < change.ranks:
        role = read_role(given, change, options.rank)
        workload = structs.replace(workload, template_of_rank=np.zeros(change.ranks, np.int32))
    elif options.rank is not None or options.new_plan is None:
        raise UsageError(
            f"{'--rank' if options.rank is not None else '--from without --to'} is for one recorded rank of"
            f" many, and there are {workload.ranks:,} of {change.ranks:,}",
            place=workload.source,
            remedy="give the axis that grows: --to dp=64",
        )
    if change.ranks != workload.ranks:
        raise UsageError(
            f"--from {old_plan} are {change.ranks:,} ranks, and there are {workload.ranks:,}",
            place=workload.source,
            remedy="give every axis that has several places",
        )
    groups = WorkloadGroups(workload, read_groups_file(options.groups))
    world = change.all_ranks if uses_all_ranks(workload) else ""
    families = find_group_rules(workload, groups, all_ranks=world, plan=change, role=role)
    growth = Growth(workload.ranks, families.rules, workload.source, of_role=role is not None)
    rules = {name: change.grown(rule, f"group {name}")[1] for name, rule in families.rules.items()}
    growth.spread(change.steps, rules)
    return replace(given, workload=workload), families, growth, change.new_replicas


def _by_groups(options: Options, given: Input) -> _Plan:
    """Return the growth of named groups, and the replicas of the whole."""
    from converters.editing.groups import WorkloadGroups, find_group_rules, read_groups_file, uses_all_ranks
    from converters.editing.growth import Growth
    from converters.editing.plans import read_replicas
    from et_sim.trace import GroupRule

    workload = given.workload
    wanted = [_wanted(text) for text in options.group]
    replicas = read_replicas(options.new_plan) if options.new_plan is not None else 0
    keeps = options.keep_groups or (replicas > 0 and uses_all_ranks(workload))
    groups = WorkloadGroups(workload, read_groups_file(options.groups))
    families = find_group_rules(workload, groups, all_ranks="replica" if keeps else "")
    growth = Growth(workload.ranks, families.rules, workload.source)
    for name, size in wanted:
        growth.grow(families.alike(name, workload.source), size)
    growth.replicate(replicas or options.replicas or 1)
    rule = GroupRule(replicas, workload.ranks) if replicas > 1 else None
    return given, families, growth, rule


def _gradients(
    options: Options, given: Input, growth: Growth, replicas: GroupRule | None
) -> Gradients | None:
    """Return the gradients that new replicas reduce; `replicas` are the ranks that do the same, if there was
    one replica.
    """
    from converters.editing.gradients import Gradients, backward_rows

    if options.gradients is None and (options.bucket is not None or options.micro_batches is not None):
        raise UsageError("--bucket and --micro-batches require --gradients", remedy="give --gradients SIZE")
    if options.gradients is None:
        trains = next((trace for trace in given.traces if replicas and backward_rows(trace).any()), None)
        if trains is None:
            return None
        raise UsageError(
            "has a backward pass but no all-reduce of gradients among replicas",
            place=trains.source,
            remedy="give the bytes that each rank reduces: --gradients SIZE (its weights times the bytes of"
            " each), or --gradients 0 to keep replicas independent",
        )
    if replicas is None:
        raise UsageError(
            "--gradients are for replicas of a job that was one replica, and dp does not grow from 1",
            remedy="leave --gradients out: existing all-reduces grow with the replicas",
        )
    if options.gradients == 0:
        return None
    bucket, passes = options.bucket or _BUCKET, options.micro_batches or 1
    return Gradients(options.gradients, bucket, passes, growth.add("dp", replicas))


def _wanted(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not equals or not size.isdecimal() or not name:
        raise UsageError(f"--group is {text!r}", remedy="give the group and its new size: --group data=64")
    return name, int(size)


def _write(options: Options, scaled: Scaled) -> tuple[list[Converted], str]:
    """Write all files; return the report and the argument for a run."""
    from converters.editing.expanding import Files
    from converters.editing.files import decoded
    from converters.files import profile_option, write_files
    from converters.records import Dropped
    from converters.report import Converted, make_report
    from et_sim.trace.disk import ENDING
    from et_sim.trace.manifest import manifest_files

    workload, prefix = scaled.workload, options.output.removesuffix(ENDING)
    inputs = [Path(path) for path, _ in workload.inputs]
    machine = ""
    if options.expand:
        traces = decoded(zip(scaled.contents, map(str, range(len(scaled.contents))), strict=True))
        files = Files(structs.replace(workload, templates=tuple(traces)), scaled.contents, prefix)
        paths, written = files.of_ranks(range(workload.ranks))
        entries = list(zip(workload.template_of_rank.tolist(), map(str, paths), strict=False))
        write_files(inputs, paths, written, prefix)
        machine = "".join(f" --groups {in_shell(path)}" for path in paths[workload.ranks :])
    else:
        listed = manifest_files(workload, scaled.contents, f"{prefix}{ENDING}")
        place_of = {content: str(path) for path, content in listed[1:]}
        entries = [(number, place_of[content]) for number, content in enumerate(scaled.contents)]
        traces = decoded((scaled.contents[number], path) for number, path in entries)
        write_files(inputs, [path for path, _ in listed], [*listed[1:], listed[0]])
    reports = [
        make_report(trace, Dropped(), notes) for trace, notes in zip(traces, scaled.notes, strict=True)
    ]
    conversions = []
    for number, report in enumerate(reports):
        outputs = tuple(dict.fromkeys(path for template, path in entries if template == number))
        conversions.append(Converted(workload.templates[number].source, "scaled", outputs, report))
    named = prefix if options.expand else f"{prefix}{ENDING}"
    machine += " --system FILE --network FILE" + (profile_option(workload) if options.expand else "")
    return conversions, f"{in_shell(named)}{machine}"


def _remarks(
    growth: Growth, scaled: Scaled, families: GroupRules, gradients: Gradients | None
) -> Iterator[str]:
    """Yield remarks on the numbering of ranks, the groups that grew, and the independence of copies."""
    from converters.editing.groups import uses_all_ranks

    templates = plural(len(set(scaled.contents)), "template")
    if growth.of_role:
        yield f"one recorded rank stands for all {growth.old_ranks:,}"
    if growth.factor > 1 or not growth.of_role:
        yield f"{plural(growth.old_ranks, 'rank')} became {growth.ranks:,}, with {templates}"
    for step in growth.steps:
        if step.factor == 1:
            continue
        why = f"group {step.group} grows" if step.group else "replicas"
        yield f"{why}: every {plural(step.block, 'rank')} {step.factor:,} times, one copy behind the other"
        if step.rule is not None and step.rule.count == 1 and gradients is None:
            yield f"{step.group} had size 1, so the input has no communication along it"
    for name, rule in growth.rules.items():
        old = growth.old_rules[name]
        grew = (
            f"{plural(old.count, 'member')} became {rule.count:,}"
            if rule.count != old.count
            else f"{rule.count:,} members"
        )
        yield f"group {name}: {grew}, {rule.apart}"
    grown = any(rule.count != growth.old_rules[name].count for name, rule in growth.rules.items())
    spans_all = uses_all_ranks(scaled.workload) and not families.renames_all_ranks
    if growth.factor > 1 and not grown and not spans_all:
        yield "no collective spans the replicas: they are independent jobs"
