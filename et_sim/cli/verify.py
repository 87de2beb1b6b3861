"""`et-sim inspect RUN critical-path --verify`: simulate again what the critical path predicts.

Not here: what is changed and how far (`et_sim.views.critical.verification`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.cli.again import Again
    from et_sim.machine import Machine
    from et_sim.machine.scaling import Scaled
    from et_sim.views.critical.sensitivity import Parameter
    from et_sim.views.critical.verification import Verified


def verify_text(directory: str, top: int | None, *, as_json: bool) -> str:
    """What simulating again says, as text or JSON."""
    from et_sim.cli.again import Again
    from et_sim.views.critical.path import CriticalPath
    from et_sim.views.critical.record import PathRecord
    from et_sim.views.critical.sensitivity import Sensitivities
    from et_sim.views.critical.verification import verification_lines, verify
    from et_sim.views.run.directory import open_run

    run = open_run(directory)
    path = CriticalPath(PathRecord(run))
    if not path.record.is_complete:
        raise UsageError(
            "did not complete, so nothing is predicted that could be verified", place=str(run.path)
        )
    again = Again(run)

    def makespan(parameter: Parameter, multiple: float) -> tuple[int, float] | None:
        return _makespan(again, parameter, multiple)

    found: list[Verified] = verify(Sensitivities(path), makespan, top)
    if as_json:
        return json.dumps([one.as_dict() for one in found], indent=2, ensure_ascii=False)
    has_library = again.machine.system.library is not None
    lines = verification_lines(found, is_exact=path.record.is_exact, has_library=has_library)
    return "\n".join(lines)


def _makespan(again: Again, parameter: Parameter, multiple: float) -> tuple[int, float] | None:
    """The makespan, and what the figure was multiplied by; None: the machine has no such figure."""
    found = _scaled(again.machine, parameter, multiple)
    if found is None or abs(found[1] - 1) < abs(multiple - 1) / 2:  # whole latencies may be too coarse
        return None
    return again.simulate(found[0]).makespan_ns, found[1]


def _scaled(machine: Machine, parameter: Parameter, multiple: float) -> Scaled:
    from et_sim.machine.scaling import OF_SYSTEM, figures, scale_bandwidth, scale_latency, scale_system
    from et_sim.views.critical.sensitivity import Quantity

    by_name = (Quantity.SWITCH_RATE, Quantity.SWITCH_LATENCY, Quantity.OF_DEVICE, Quantity.LAUNCH)
    if parameter.quantity in by_name:
        known = figures(machine)
        return known[parameter.name](multiple) if parameter.name in known else None
    if parameter.quantity is Quantity.BANDWIDTH:
        return scale_bandwidth(machine, parameter.link, multiple)
    if parameter.quantity is Quantity.LATENCY:
        return scale_latency(machine, parameter.link, multiple)
    name = OF_SYSTEM.get(parameter.quantity)
    return None if name is None else scale_system(machine, name, multiple)
