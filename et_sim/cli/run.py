"""`et-sim run`: simulate a workload on a machine and write the run's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from et_sim.basics.declared_options import Hidden
from et_sim.basics.errors import UsageError
from et_sim.cli.options import SimulationOptions, run_options
from et_sim.documents.recognise import FileKind, kind_of

WORKLOAD_HELP = (
    "trace prefix: PREFIX for PREFIX.0.et, PREFIX.1.et, …; a workload manifest; "
    "a job file; a layer file of ASTRA-sim 1.0; or schedules of LogGOPSim (GOAL text)"
)


class Options(SimulationOptions):
    """Simulate a workload on a machine."""

    workload: Annotated[str, WORKLOAD_HELP]
    network_models: Annotated[
        str | None,
        "simulate on each of these network models in turn, and compare them: analytical,link",
        "LIST",
        Hidden("--models"),
    ] = None
    out: Annotated[
        Path | None, "directory to write (default: ./NAME.run, NAME being the last part of WORKLOAD)"
    ] = None
    ranks: Annotated[str | None, 'write the rows of these ranks only, such as "0-3,6"'] = None
    window: Annotated[str | None, "write the rows of this time only: 10ms:20ms", "FROM:TO"] = None
    compress: Annotated[str, "lz4 (default), zstd or none", "HOW"] = "lz4"
    json: Annotated[bool, "print the content of summary.json"] = False


def run(options: Options) -> int:
    """Simulate, write the directory, and print the summary."""
    from et_sim.timeline import OutputFilter, check_target

    names = _models(options)
    target = options.out or Path(f"{_name(options.workload)}.run")
    if names:
        from et_sim.cli.simulating import check_ladder

        check_ladder(target, names)
    else:
        check_target(target)
    output_filter = OutputFilter(compression=options.compress)
    if options.ranks is not None or options.window is not None:
        from et_sim.views.run.selection import selection

        part = selection(options.ranks, options.window)
        output_filter = OutputFilter(part.ranks, part.window, options.compress)
    wanted = replace(run_options(options), other_profile=True)
    if names:
        from et_sim.cli.simulating import simulate_ladder

        return simulate_ladder(
            target, options.workload, wanted, names, as_json=options.json, output_filter=output_filter
        )
    from et_sim.cli.simulating import simulate_into

    return simulate_into(target, options.workload, wanted, as_json=options.json, output_filter=output_filter)


def _name(workload: str) -> str:
    """Return the default name of a run."""
    from et_sim.trace.disk import ENDING

    path = Path(workload)
    return path.stem if kind_of(path) is FileKind.JOBS else path.name.removesuffix(ENDING)


def _models(options: Options) -> list[str]:
    """Return the models of `--network-models`, or none."""
    if options.network_models is None:
        return []
    from et_sim.cli.simulating import models_named

    if options.network_model is not None:
        raise UsageError(
            "--network-model and --network-models are both given", remedy="leave one of them out"
        )
    if options.samples is not None:
        raise UsageError("--samples are of one network model", remedy="leave --network-models out")
    return models_named(options.network_models)
