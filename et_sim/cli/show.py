"""`et-sim show`: draw the schedule of a workload before it is simulated, or of a run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError
from et_sim.cli.options import Json
from et_sim.documents.recognise import FileKind, kind_of
from et_sim.views.view import VIEWS

if TYPE_CHECKING:
    from et_sim.views.run.directory import RunDirectory

# Every collective is one step of direct messages, and these take no time.
IDEAL_SYSTEM = {
    "profile": "corrected",
    # Ports are free, and there are no dimensions for groups.
    "corrections": {"port-bandwidth": False, "groups-by-dimension": False},
    "endpoint-delay": 0,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["halvingDoubling"],  # few messages, also in large groups
    "all-gather-implementation": ["halvingDoubling"],
    "reduce-scatter-implementation": ["halvingDoubling"],
    "all-to-all-implementation": ["direct"],
}
IDEAL_NETWORK = {"topology": ["FullyConnected"], "bandwidth": [1e12], "latency": [0]}
IDEAL_MEMORY = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 0, "remote-mem-bw": 1e12}


class Options(Command):
    """Draw the passes and micro-batches that every rank works on: of a workload, with the times of its traces
    and a network that takes none; of a run, as it was.
    """

    epilog = (
        'Kernels belong to passes by their names, which begin like "forward 3", "backward 3",'
        ' "backward-inputs 3" or "backward-weights 3", perhaps with "chunk 1" behind it.'
    )

    schedule_of: Annotated[str, "traces (their prefix), a manifest, or the directory of a run", "WORKLOAD"]
    groups: Annotated[str | None, "communicator groups of a workload (JSON)", "FILE"] = None
    svg: Annotated[Path | None, "draw it into an SVG file", "FILE"] = None
    png: Annotated[Path | None, "draw it into a PNG file", "FILE"] = None
    json: Json = False


def run(options: Options) -> int:
    """Draw the schedule."""
    from et_sim.views import open_run

    given = options.schedule_of
    if kind_of(Path(given)) in (FileKind.RUN, FileKind.PART_OF_RUN):
        if options.groups is not None:
            raise UsageError("--groups is not for a run", remedy="leave it out: the run has its groups")
        return _draw(options, open_run(given), "")
    with tempfile.TemporaryDirectory() as folder:
        _simulate(given, options.groups, Path(folder) / "run")
        remark = "with the traces' own times, on a network that takes none"
        return _draw(options, open_run(Path(folder) / "run"), remark)


def _simulate(workload: str, groups: str | None, target: Path) -> None:
    """Run the traces on a machine whose network takes no time."""
    from et_sim.api import simulate
    from et_sim.trace import read_workload

    ranks = read_workload(workload).ranks
    network = {**IDEAL_NETWORK, "npus_count": [ranks]}
    simulate(workload, system=IDEAL_SYSTEM, network=network, memory=IDEAL_MEMORY, groups=groups).save(target)


def _draw(options: Options, opened: RunDirectory, remark: str) -> int:
    """Print or draw the schedule like `et-sim inspect RUN schedule`."""
    from et_sim.cli.inspect import present
    from et_sim.views.run.selection import EVERYTHING
    from et_sim.views.summary.schedule import schedule_of

    if schedule_of(opened) is None:
        raise UsageError(
            "has no kernel of a pass",
            place=options.schedule_of,
            remedy='names of kernels in passes begin like "forward 3" or "backward 3"; '
            "et-sim report draws runs of any form",
        )
    present(VIEWS["schedule"], opened, EVERYTHING, options)
    files = [str(file) for file in (options.svg, options.png) if file is not None]
    if files:
        print(f"drawn into {' and '.join(files)}")
    elif remark and not options.json:
        print(remark)
    return 0
