"""Simulating the inputs of a run again, with the machine changed: for `--verify` and `--vary`.

Not here: what is changed, and what is said of it (`verify`, `vary`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import EtSimError, UsageError

if TYPE_CHECKING:
    from et_sim.machine import Machine
    from et_sim.run.result import Result
    from et_sim.views.run.directory import RunDirectory

AGAIN = "simulate again with et-sim run"


class Again:
    """The inputs of a run, which must lie where they lay, and be unchanged."""

    def __init__(self, run: RunDirectory) -> None:
        from et_sim.machine import read_machine
        from et_sim.run.options import MACHINE, machine_parts

        command = run.manifest.get("command")
        if command is None:
            raise UsageError(
                "was not simulated from files, so it cannot be simulated again",
                place=str(run.path),
                remedy="simulate files with et-sim run",
            )
        self._run, self._fold = run, bool(command["fold"])
        self._alone, self._retime = bool(command.get("alone", False)), bool(command.get("retime", False))
        self._files: dict[str, Any] = {name: str(run.path / path) for name, path in command["files"].items()}
        self._workload, self._profile = self._files.pop("workload"), command["profile"]
        self._preset: str | None = command.get("machine")
        try:
            parts = machine_parts({name: self._files.get(name) for name in MACHINE}, self._preset)
            self.machine = read_machine(**parts, profile=self._profile)
        except EtSimError as error:
            raise self._moved(error) from None

    def simulate(self, machine: Machine) -> Result:
        """The run on this machine."""
        from et_sim import api
        from et_sim.run.options import RunOptions

        options = RunOptions(
            **self._files,
            machine=self._preset,
            model=self._run.manifest["model"],
            profile=self._profile,
            fold=self._fold,
            alone=self._alone,
            retime=self._retime,
        )
        try:
            result = api.execute(self._workload, options, change=lambda _: machine)
        except EtSimError as error:
            reason = f"cannot be simulated again: {error}"
            raise UsageError(reason, place=str(self._run.path), remedy=AGAIN) from None
        known = {(entry["file"], entry["sha256"]) for entry in self._run.manifest["inputs"]}
        for entry in result.manifest["inputs"]:
            if (entry["file"], entry["sha256"]) not in known:
                reason = f"{entry['file']} has changed since the run, so it cannot be simulated again"
                raise UsageError(reason, place=str(self._run.path), remedy=AGAIN)
        return result

    def _moved(self, error: EtSimError) -> UsageError:
        reason = f"its inputs cannot be read where they were: {error}"
        return UsageError(reason, place=str(self._run.path), remedy=AGAIN)
