"""`et-sim calibrate step`: fit one figure to one measured time of a whole job.

Not here: the search (`et_sim.calibrate.step`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import EITHER, Option
from et_sim.basics.units import parse_time_ns
from et_sim.cli.calibrate_report import FitOptions, conclude
from et_sim.cli.run import WORKLOAD_HELP

if TYPE_CHECKING:
    from et_sim.calibrate.step import Step

COMMON_HOST_NS = (1000.0, 20000.0)  # a launch of frameworks that launch kernel by kernel


class Options(FitOptions):
    """Find the one figure with which a job takes as long as was measured: the time that the host takes to
    launch a kernel, or a factor on the time of kernels. One number cannot tell the two apart, and the job
    says nothing any more of how far off the machine is."""

    workload: Annotated[str, WORKLOAD_HELP, "JOB"]
    measured: Annotated[float, "how long it took: 1.42s", "TIME", Option(parse=parse_time_ns, least=1)]
    machine: Annotated[str, "the machine that was measured", "NAME:NPUS", Option()]
    host_time: Annotated[bool, "find the host's time (default)", EITHER] = False
    software_factor: Annotated[bool, "find a factor on kernels", EITHER] = False


def run(options: Options) -> int:
    """Search, say what was found, and write the machine."""
    from et_sim.basics.units import format_ns
    from et_sim.calibrate.machine_file import calibrated_machine, files_text
    from et_sim.calibrate.step import HOST_TIME, find_host_time, find_software_factor
    from et_sim.run.options import RunOptions

    measured_ns = options.measured
    find = find_software_factor if options.software_factor else find_host_time
    step = find(options.workload, RunOptions(machine=options.machine), measured_ns)
    facts = {
        "job": Path(options.workload).name,
        "machine": options.machine,
        "measured_ns": round(measured_ns),
        "simulated_before_ns": step.before_ns,
        "simulated_ns": step.after_ns,
        step.figure: step.value,
    }

    def machine() -> dict[str, Any]:
        changes: dict[str, Any] = (
            {"host-time": f"{step.value:g}ns"}
            if step.figure == HOST_TIME
            else {"time-factors": [{"kernels": step.value}]}
        )
        files = files_text(_files(options.workload))
        source = (
            f"one time, {format_ns(measured_ns)} of {files} on {options.machine}; this job says nothing of "
            "how far off the machine is"
        )
        return calibrated_machine(options.machine, changes, source, step.figure, facts)

    return conclude(options, facts, _text(step, measured_ns), machine)


def _text(step: Step, measured_ns: float) -> list[str]:
    from et_sim.basics.units import format_ns
    from et_sim.calibrate.step import HOST_TIME

    value = format_ns(step.value) if step.figure == HOST_TIME else f"{step.value:g}"
    ratio = 100 * (step.after_ns / measured_ns - 1)
    lines = [
        f"measured {format_ns(measured_ns)}, simulated {format_ns(step.before_ns)} without",
        f"with {step.figure} {value}: {format_ns(step.after_ns)} ({ratio:+.2f} %), after {step.runs} runs",
        f"{step.figure} is fitted to this one time: whatever else the machine lacks is in it, and this job "
        "says nothing any more of how far off the machine is",
    ]
    least, most = COMMON_HOST_NS
    if step.figure == HOST_TIME and step.value and not least <= step.value <= most:
        usual = f"{format_ns(least)} to {format_ns(most)}"
        lines.append(
            f"hosts commonly take {usual} for a launch: look whether something "
            "else is missing, such as waits for data, or collectives that are slower"
        )
    return lines


def _files(workload: str) -> list[Path]:
    """What a job was read from."""
    path = Path(workload)
    if path.is_file():
        return [path]
    return sorted(
        file for file in path.parent.glob(f"{path.name}.*") if file.name.endswith((".et", ".workload.json"))
    )
