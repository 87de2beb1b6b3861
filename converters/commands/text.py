"""`et-convert text`: a layer file (ASTRA-sim 1.0) to traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from converters.commands import MOST_FILES, JsonReport
from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell

if TYPE_CHECKING:
    from converters.report import Converted
    from et_sim.layerfile import LayerFile
    from et_sim.trace import Workload

CHAKRA, ET_SIM = "chakra", "et-sim"


class Options(Command):
    """Unroll the training loop of a layer file, the text workload of ASTRA-sim 1.0, into a trace that all
    ranks run, and write a workload manifest, or one trace file per rank."""

    input: Annotated[Path, "the layers; may be gzipped", "LAYERFILE"]
    output: Annotated[str, "write PREFIX.workload.json and its template", "PREFIX", Option("-o --output")]
    ranks: Annotated[int, "how many ranks run it", Option()]
    passes: Annotated[int, "passes of the training loop", Option(least=1)] = 1
    expand: Annotated[bool, "write PREFIX.0.et, PREFIX.1.et, … instead of a manifest"] = False
    flavour: Annotated[
        str,
        "et-sim: the loop of ASTRA-sim 1.0; chakra: what the text converter of Chakra writes, one file"
        " per rank",
        Option(choices=(ET_SIM, CHAKRA)),
    ] = ET_SIM
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Read the layers, unroll the loop, write the files, and report."""
    from converters.report import report_lines
    from et_sim.layerfile.reading import parse_layer_file, read_text

    _check(options)
    text = read_text(options.input)
    layer_file = parse_layer_file(text, str(options.input))
    if options.flavour == CHAKRA:
        converted = _write_chakra(options, layer_file, text)
    elif options.expand:
        converted = _write_files(options, layer_file)
    else:
        converted = _write_manifest(options, layer_file)
    yield from report_lines([converted], as_json=options.json)


def _check(options: Options) -> None:
    from et_sim.trace.disk import ENDING
    from et_sim.trace.manifest import MOST_RANKS

    is_many = options.expand or options.flavour == CHAKRA
    most = MOST_FILES if is_many else MOST_RANKS
    if not 1 <= options.ranks <= most:
        remedy = f"give 1 to {most:,} ranks" + ("; a manifest can have more" if is_many else "")
        raise UsageError(f"--ranks is {options.ranks:,}", remedy=remedy)
    if is_many and options.output.endswith(ENDING):
        raise UsageError(
            f"one file per rank cannot be called {options.output}", remedy=f"leave {ENDING} out of -o PREFIX"
        )


def _write_manifest(options: Options, layer_file: LayerFile) -> Converted:
    from converters.files import refuse_overwriting
    from et_sim.layerfile.program import layer_workload
    from et_sim.trace import write_manifest
    from et_sim.trace.disk import ENDING

    workload, program = layer_workload(layer_file, options.ranks, options.passes)
    prefix = options.output.removesuffix(ENDING)
    manifest = Path(f"{prefix}{ENDING}")
    refuse_overwriting([options.input], [manifest, Path(f"{prefix}.template0.et")])
    _, template = write_manifest(workload, manifest)
    notes = [*_groups(layer_file, workload), ("template", f"{template}, for all {options.ranks:,} ranks")]
    notes.append(("run with", f"et-sim run {in_shell(manifest)} --system FILE --network FILE"))
    return _converted(options, program, [str(manifest)], notes)


def _groups(layer_file: LayerFile, workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield the members of the groups that follow rules."""
    if layer_file.model_group is not None and layer_file.model_group > workload.ranks:
        larger = f"groups of {layer_file.model_group:,} are larger than the job"
        yield "model groups", f"none: {larger}, so every rank has the whole model, as in 1.0"
    for name, rule in workload.group_rules.items():
        apart = f", {rule.apart}" if rule.stride != 1 else ""
        yield f"{name} groups", f"{rule.number(workload.ranks):,} of {rule.count:,} ranks{apart}"


def _write_files(options: Options, layer_file: LayerFile) -> Converted:
    from converters.files import trace_path, write_files
    from et_sim.layerfile.program import layer_workload
    from et_sim.trace.files import files_of_ranks, groups_path

    workload, program = layer_workload(layer_file, options.ranks, options.passes)
    paths = [trace_path(options.output, rank) for rank in range(options.ranks)]
    groups = [groups_path(options.output)] if workload.group_rules else []
    files = files_of_ranks(workload, options.output)
    write_files([options.input], [*paths, *groups], files, options.output)
    notes = [*_groups(layer_file, workload), *(("groups file", str(path)) for path in groups)]
    with_groups = "".join(f" --groups {in_shell(path)}" for path in groups)
    notes.append(
        ("run with", f"et-sim run {in_shell(options.output)}{with_groups} --system FILE --network FILE")
    )
    return _converted(options, program, [str(path) for path in paths], notes)


def _converted(
    options: Options, program: Any, outputs: list[str], notes: Iterable[tuple[str, str]]
) -> Converted:
    from converters.layers.summary import notes_of
    from converters.records import Dropped
    from converters.report import Converted, make_report

    all_notes = [*notes_of(program, options.passes), *notes]
    report = make_report(program.trace, Dropped(), all_notes)
    return Converted(str(options.input), _format(program.layer_file), tuple(outputs), report)


def _write_chakra(options: Options, layer_file: LayerFile, text: str) -> Converted:
    from converters.files import trace_path, write_files
    from converters.layers.chakra import chakra_file, chakra_graph
    from converters.layers.summary import chakra_notes
    from converters.records import Dropped
    from converters.report import Converted, make_report
    from et_sim.trace import decode

    graph = chakra_graph(layer_file, options.passes)
    plain = text.replace("\r\n", "\n")
    paths = [trace_path(options.output, rank) for rank in range(options.ranks)]
    trace = decode(chakra_file(graph.nodes, 0, plain), str(paths[0]))
    files = ((path, chakra_file(graph.nodes, rank, plain)) for rank, path in enumerate(paths))
    write_files([options.input], paths, files)
    report = make_report(trace, Dropped(), chakra_notes(layer_file, graph, options.passes))
    return Converted(str(options.input), _format(layer_file), tuple(str(path) for path in paths), report)


def _format(layer_file: LayerFile) -> str:
    return f"layer file, {layer_file.keyword}"
