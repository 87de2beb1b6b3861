"""A calibrated machine: a machine by name with what was fitted, where that came from, and how far off it is.

Not here: fits (`calibrate.collectives`), and reading such a machine (`machine.presets`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.uncertainty import CALIBRATED
from et_sim.machine.presets import as_one_file

COMMON = 0.03  # of runs and versions on one machine: E 1.3 to 7 %


def calibrated_machine(
    base: str,
    changes: Mapping[str, Any],
    measured: str,
    fitted: str,
    errors: Mapping[str, Any],
    *,
    adds: bool = False,
) -> dict[str, Any]:
    """The machine `base` with `changes`; under the name `fitted`, what was measured, and errors.

    What was fitted under this name before is replaced, unless this `adds` to it. An estimate that has a
    source now is none any more.
    """
    machine: dict[str, Any] = _merged(as_one_file(base.partition(":")[0]), changes)
    source, before = f"Fitted by et-sim calibrate to {measured}", machine["sources"].get(fitted)
    if adds and before:
        source += f"; what these do not say: {before[0].lower()}{before[1:]}"
    machine["sources"] = {**machine["sources"], fitted: source}
    machine["estimates"] = {
        name: text for name, text in machine["estimates"].items() if name.partition(":")[0] != fitted
    }
    device = machine["device"]
    estimates = {name: text for name, text in device["estimates"].items() if name not in device["sources"]}
    machine["device"] = {**device, "estimates": estimates}
    calibrated = machine.get("calibrated", {})
    kept = calibrated.get(fitted, {}) if adds else {}
    machine["calibrated"] = {**calibrated, fitted: {**kept, **errors}}
    return machine


def accuracy_entry(unseen: Sequence[float]) -> dict[str, Any]:
    """What `accuracy` states of a class of time, from predicted by measured of rows that a fit had not seen.

    The standard error follows from the mean of |ln|, which single rows far off do not decide. Other software,
    of which rows on one machine tell nothing, is common to all times, and stated for these.
    """
    mean = sum(abs(math.log(ratio)) for ratio in unseen) / len(unseen)
    random = math.sqrt(math.pi / 2) * mean
    return {"basis": CALIBRATED, "random": round(random, 4), "common": COMMON}


def files_text(paths: Sequence[Path]) -> str:
    """Files by name, with what tells them from others of that name."""
    return ", ".join(f"{path.name} (sha256 {_digest(path)})" for path in paths)


def _merged(old: Any, new: Any) -> Any:
    """Objects key by key; all else is replaced."""
    if not isinstance(old, dict) or not isinstance(new, Mapping):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
