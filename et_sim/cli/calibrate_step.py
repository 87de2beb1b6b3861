"""`et-sim calibrate step`: fit a figure to the measured time of a whole job, or two figures to two times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import EITHER, Option
from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.units import format_ns, parse_time_ns, plural
from et_sim.cli.calibrate_report import FitOptions, conclude
from et_sim.cli.run import WORKLOAD_HELP
from et_sim.run.options import RunOptions

if TYPE_CHECKING:
    from et_sim.calibrate.step import FittedStep
    from et_sim.calibrate.step_pair import FittedPair

COMMON_HOST_NS = (1000.0, 20000.0)  # a launch in frameworks that launch kernel by kernel
COMMON_RATES = (0.5, 1.2)  # of devices, from their power limit to rates above the estimate of a preset


class Options(FitOptions):
    """Find the one figure with which a job takes its measured time: the time that the host takes to launch a
    kernel, a factor on the time of kernels, the rate of the device or of its memory, or the limit of its
    power. One time cannot separate these, and the job is then no test of the machine's accuracy. With times
    of other jobs, preferably of other models, the figure that predicts these best is taken; or software and
    power are fitted at once to two jobs, and predict the others.
    """

    workload: Annotated[str, WORKLOAD_HELP, "JOB"]
    measured: Annotated[float, "measured time: 1.42s", "TIME", Option(parse=parse_time_ns, least=1)]
    machine: Annotated[str, "the machine that was measured", "NAME:NPUS", Option()]
    other: Annotated[Sequence[str], "another job and its measured time, which is predicted", "JOB=TIME"] = ()
    host_time: Annotated[bool, "find the host's time (default without --other)", EITHER] = False
    software_factor: Annotated[bool, "find a factor on kernels", EITHER] = False
    device_rate: Annotated[bool, "find a factor on the peak rates of the device", EITHER] = False
    memory_rate: Annotated[bool, "find a factor on the bandwidth of its memory", EITHER] = False
    power_rate: Annotated[bool, "find a factor on the limit of its power", EITHER] = False
    software_and_power: Annotated[
        bool, "find a factor on kernels and one on the limit of power, from JOB and the first --other", EITHER
    ] = False


Others = Sequence[tuple[str, float]]


def run(options: Options) -> int:
    """Search, print the result, and write the machine."""
    from et_sim.calibrate.machine_file import calibrated_machine, files_text
    from et_sim.calibrate.step import FIGURES, HOST_TIME
    from et_sim.machine.presets import as_one_file

    measured_ns, others = options.measured, [_other(text) for text in options.other]
    if options.software_and_power:
        return _fit_both(options, others)
    asked = [name for name in FIGURES if getattr(options, name.replace("-", "_"))]
    names = asked or (list(FIGURES) if others else [HOST_TIME])
    run_options = RunOptions(machine=options.machine)
    step, predicted, why_not = _best(names, options.workload, run_options, measured_ns, others)
    facts: dict[str, Any] = {
        "job": Path(options.workload).name,
        "machine": options.machine,
        "measured_ns": round(measured_ns),
        "simulated_before_ns": step.before_ns,
        "simulated_ns": step.after_ns,
        step.figure: step.value,
    }
    if others:
        facts["others"] = [
            {"job": Path(job).name, "measured_ns": round(time), "simulated_ns": by_figure}
            for (job, time), by_figure in zip(others, predicted, strict=True)
        ]

    def machine() -> dict[str, Any]:
        changes = FIGURES[step.figure].keys(as_one_file(options.machine.partition(":")[0]), step.value)
        files = files_text(_files(options.workload))
        source = (
            f"one time, {format_ns(measured_ns)} of {files} on {options.machine}; this job is no test of "
            "the machine's accuracy"
        )
        return calibrated_machine(options.machine, changes, source, step.figure, facts)

    text = [*_text(step, measured_ns), *_predictions(step, others, predicted), *why_not]
    return conclude(options, facts, text, machine)


def _fit_both(options: Options, others: Others) -> int:
    """Fit software and power at once, print the result, and write the machine."""
    from et_sim.calibrate.machine_file import calibrated_machine, files_text
    from et_sim.calibrate.step import FIGURES, POWER_RATE, SOFTWARE_FACTOR
    from et_sim.calibrate.step_pair import find_both, predicted
    from et_sim.machine.presets import as_one_file

    if not others:
        raise UsageError("--software-and-power needs a second job", remedy="give its time: --other JOB=1.42s")
    jobs, times = (options.workload, others[0][0]), (options.measured, others[0][1])
    run_options = RunOptions(machine=options.machine)
    pair = find_both(jobs, run_options, times)
    more = [(job, time, predicted(pair, job, run_options)) for job, time in others[1:]]
    facts = _facts_of_both(options, jobs, times, pair, more)

    def machine() -> dict[str, Any]:
        file = as_one_file(options.machine.partition(":")[0])
        changes = {
            **FIGURES[SOFTWARE_FACTOR].keys(file, pair.software),
            **FIGURES[POWER_RATE].keys(file, pair.power),
        }
        files = files_text([*_files(jobs[0]), *_files(jobs[1])])
        source = (
            f"two times, of {files} on {options.machine}; these jobs are no test of the machine's accuracy"
        )
        found = calibrated_machine(options.machine, changes, source, SOFTWARE_FACTOR, facts)
        found["sources"][POWER_RATE] = found["sources"][SOFTWARE_FACTOR]
        return found

    return conclude(options, facts, _text_of_both(facts, pair.runs), machine)


def _facts_of_both(
    options: Options,
    jobs: tuple[str, str],
    times: tuple[float, float],
    pair: FittedPair,
    more: Sequence[tuple[str, float, int]],
) -> dict[str, Any]:
    from et_sim.calibrate.step import POWER_RATE, SOFTWARE_FACTOR

    fitted = zip(jobs, times, pair.before_ns, pair.after_ns, strict=True)
    return {
        "machine": options.machine,
        SOFTWARE_FACTOR: pair.software,
        POWER_RATE: pair.power,
        "fitted": [
            {
                "job": Path(job).name,
                "measured_ns": round(time),
                "simulated_before_ns": before,
                "simulated_ns": after,
            }
            for job, time, before, after in fitted
        ],
        "others": [
            {"job": Path(job).name, "measured_ns": round(time), "simulated_ns": ns} for job, time, ns in more
        ],
    }


def _text_of_both(facts: Mapping[str, Any], runs: int) -> list[str]:
    from et_sim.calibrate.step import POWER_RATE, SOFTWARE_FACTOR

    figures = " and ".join(f"{name} {facts[name]:g}" for name in (SOFTWARE_FACTOR, POWER_RATE))
    text = [f"with {figures}, after {plural(runs, 'run')}:"]
    for row in facts["fitted"]:
        before, after = format_ns(row["simulated_before_ns"]), format_ns(row["simulated_ns"])
        measured = format_ns(row["measured_ns"])
        text.append(f"{row['job']}: measured {measured}, simulated {before} without, {after} with both")
    for row in facts["others"]:
        off = 100 * (row["simulated_ns"] / row["measured_ns"] - 1)
        measured, found = format_ns(row["measured_ns"]), format_ns(row["simulated_ns"])
        text.append(f"{row['job']}: measured {measured}, predicted {found} ({off:+.1f} %)")
    if not facts["others"]:
        text.append("both jobs were fitted: only a third one (--other) can test the figures")
    return text


def _other(text: str) -> tuple[str, float]:
    job, equals, time = text.rpartition("=")
    if not equals or not job:
        raise UsageError(f"--other {text!r} is no job and its time", remedy="write --other JOB=1.42s")
    measured = parse_time_ns(time)
    if measured < 1:
        raise UsageError(f"--other {text!r} has no time", remedy="give more than 0")
    return job, measured


def _best(
    names: Sequence[str], job: str, options: RunOptions, measured_ns: float, others: Others
) -> tuple[FittedStep, list[dict[str, int]], list[str]]:
    """Return the figure that predicts the other jobs best, the predictions of each figure, and failed
    figures.
    """
    from et_sim.calibrate.step import error_of, find, simulated_with

    found, why_not = list[Any](), list[str]()
    for name in names:
        try:
            found.append(find(name, job, options, measured_ns))
        except InputError as error:
            if len(names) == 1:
                raise
            why_not.append(f"{name} does not explain it: {error.cause}")
    if not found:
        raise UsageError(
            "no figure explains the time: " + "; ".join(why_not), remedy="look at job and machine"
        )
    predicted = [{step.figure: simulated_with(step, other, options) for step in found} for other, _ in others]

    def off(step: FittedStep) -> float:
        pairs = [
            (by_figure[step.figure], time) for by_figure, (_, time) in zip(predicted, others, strict=True)
        ]
        return error_of(pairs) if pairs else 0.0

    return min(found, key=off), predicted, why_not


def _predictions(step: FittedStep, others: Others, predicted: Sequence[Mapping[str, int]]) -> list[str]:
    lines = []
    for (job, time), by_figure in zip(others, predicted, strict=True):
        errors = ", ".join(
            f"{name} {format_ns(ns)} ({100 * (ns / time - 1):+.1f} %)" for name, ns in by_figure.items()
        )
        lines.append(f"{Path(job).name}: measured {format_ns(time)}; {errors}")
    if others and len(predicted[0]) > 1:
        lines.append(f"{step.figure} predicts the other jobs best, and is taken")
    return lines


def _text(step: FittedStep, measured_ns: float) -> list[str]:
    from et_sim.calibrate.step import FIGURES, HOST_TIME

    value = format_ns(step.value) if step.figure == HOST_TIME else f"{step.value:g}"
    ratio = 100 * (step.after_ns / measured_ns - 1)
    lines = [
        f"measured {format_ns(measured_ns)}, simulated {format_ns(step.before_ns)} without",
        f"with {step.figure} {value}: {format_ns(step.after_ns)} ({ratio:+.2f} %), "
        f"after {plural(step.runs, 'run')}",
        f"{step.figure} is fitted to this one time: it absorbs all other errors of the machine, and "
        "this job is no longer a test of the machine's accuracy",
    ]
    least, most = COMMON_HOST_NS
    if step.figure == HOST_TIME and step.value and not least <= step.value <= most:
        usual = f"{format_ns(least)} to {format_ns(most)}"
        lines.append(
            f"hosts commonly take {usual} for a launch: check whether something "
            "else is missing, such as waits for data, or collectives that are slower"
        )
    slow, fast = COMMON_RATES
    if FIGURES[step.figure].is_rate and not slow <= step.value <= fast:
        lines.append(
            f"devices keep {slow:g} to {fast:g} of their rates: check whether something else is missing, "
            "such as copies and casts of the software"
        )
    return lines


def _files(workload: str) -> list[Path]:
    """Return the files of a job."""
    path = Path(workload)
    if path.is_file():
        return [path]
    return sorted(
        file for file in path.parent.glob(f"{path.name}.*") if file.name.endswith((".et", ".workload.json"))
    )
