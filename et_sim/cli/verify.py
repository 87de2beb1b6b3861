"""`et-sim inspect RUN critical-path --verify`: simulate again what the critical path foretells.

Not here: what is changed and how far (`et_sim.views.critical.verification`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from et_sim.errors import EtSimError, UsageError

if TYPE_CHECKING:
    from et_sim.machine import Machine
    from et_sim.machine.scaling import Scaled
    from et_sim.result import Result
    from et_sim.views.critical.sensitivity import Parameter
    from et_sim.views.critical.verification import Verified
    from et_sim.views.run.directory import RunDirectory

AGAIN = "simulate again with et-sim run … --detail path"


def verify_text(directory: str, top: int | None, *, as_json: bool) -> str:
    """What simulating again says, as text or JSON."""
    from et_sim.views.critical.path import CriticalPath
    from et_sim.views.critical.record import PathRecord
    from et_sim.views.critical.sensitivity import Sensitivities
    from et_sim.views.critical.verification import verification_lines, verify
    from et_sim.views.run.directory import open_run

    run = open_run(directory)
    path = CriticalPath(PathRecord(run))
    if not path.record.is_complete:
        raise UsageError(
            "did not complete, so nothing is foretold that could be verified", place=str(run.path)
        )
    found: list[Verified] = verify(Sensitivities(path), _Again(run).makespan, top)
    if as_json:
        return json.dumps([one.as_dict() for one in found], indent=2, ensure_ascii=False)
    return "\n".join(verification_lines(found))


class _Again:
    """Simulates the inputs of a run with one figure of the machine changed."""

    def __init__(self, run: RunDirectory) -> None:
        from et_sim.machine import read_machine

        command = run.manifest.get("command")
        if command is None:
            raise UsageError(
                "was not simulated from files, so it cannot be simulated again",
                place=str(run.path),
                remedy="simulate files with et-sim run … --detail path",
            )
        self._run, self._fold = run, bool(command["fold"])
        self._alone = bool(command.get("alone", False))
        self._files: dict[str, Any] = {name: str(run.path / path) for name, path in command["files"].items()}
        self._workload, self._profile = self._files.pop("workload"), command["profile"]
        try:
            self._machine = read_machine(**self._files, profile=self._profile)
        except EtSimError as error:
            raise self._moved(error) from None

    def makespan(self, parameter: Parameter, multiple: float) -> tuple[int, float] | None:
        """The makespan, and what the figure was multiplied by; None: the machine has no such figure."""
        found = _scaled(self._machine, parameter, multiple)
        if found is None or abs(found[1] - 1) < abs(multiple - 1) / 2:  # whole latencies may be too coarse
            return None
        return self._simulate(found[0]).makespan_ns, found[1]

    def _simulate(self, machine: Machine) -> Result:
        from et_sim import api
        from et_sim.run_options import RunOptions

        options = RunOptions(
            **self._files,
            model=self._run.manifest["model"],
            profile=self._profile,
            fold=self._fold,
            alone=self._alone,
        )
        try:
            result = api.execute(self._workload, options, change=lambda _: machine)
        except EtSimError as error:
            raise self._moved(error) from None
        known = {entry["file"]: entry["sha256"] for entry in self._run.manifest["inputs"]}
        for entry in result.manifest["inputs"]:
            if known.get(entry["file"]) != entry["sha256"]:
                reason = f"{entry['file']} has changed since the run, so nothing can be verified"
                raise UsageError(reason, place=str(self._run.path), remedy=AGAIN)
        return result

    def _moved(self, error: EtSimError) -> UsageError:
        reason = f"its inputs cannot be read where they were: {error}"
        return UsageError(reason, place=str(self._run.path), remedy=AGAIN)


def _scaled(machine: Machine, parameter: Parameter, multiple: float) -> Scaled:
    from et_sim.machine.scaling import scale_bandwidth, scale_latency, scale_system
    from et_sim.views.critical.sensitivity import Quantity

    of_system = {
        Quantity.ENDPOINT_DELAY: "endpoint_delay_ns",
        Quantity.PEAK_COMPUTE: "peak_perf",
        Quantity.LOCAL_MEMORY_BANDWIDTH: "local_mem_bw",
    }
    if parameter.quantity is Quantity.BANDWIDTH:
        return scale_bandwidth(machine, parameter.link, multiple)
    if parameter.quantity is Quantity.LATENCY:
        return scale_latency(machine, parameter.link, multiple)
    name = of_system.get(parameter.quantity)
    return None if name is None else scale_system(machine, name, multiple)
