"""The object `compute` of the system file: the systolic array that times kernels.

Not here: its keys (`compute_tables`), and what an array makes of a layer (`et_sim.compute.systolic`).
"""

from __future__ import annotations

from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import fill_defaults, read_keys
from et_sim.machine.compute_tables import NAME, SYSTOLIC_KEYS
from et_sim.machine.keys import Remarks
from et_sim.machine.sources import Source
from et_sim.machine.systolic import Array, Bandwidth, ClockedArray, Dataflow, Rules


def read_compute(given: dict[str, Any], place: str, remarks: Remarks) -> ClockedArray | None:
    """The array that the key `compute` describes."""
    if NAME not in given:
        return None
    if given.get("roofline-enabled"):
        raise MachineError(
            f'keys "{NAME}" and "roofline-enabled" both say what times kernels',
            place=place,
            remedy="leave one of them out",
        )
    place = f'{place}: "{NAME}"'
    said = read_keys(Source(place, given[NAME], ""), SYSTOLIC_KEYS, remarks)
    values = fill_defaults(said, SYSTOLIC_KEYS, place, remarks)
    bandwidth = values.get("bandwidth")
    array = Array(
        height=values["array-height"],
        width=values["array-width"],
        ifmap_kb=values["ifmap-sram-kb"],
        filter_kb=values["filter-sram-kb"],
        ofmap_kb=values["ofmap-sram-kb"],
        dataflow=Dataflow(values["dataflow"]),
        mode=Bandwidth.CALCULATED if bandwidth is None else Bandwidth.GIVEN,
        bandwidths=(bandwidth or 10,),
        rules=Rules(values["rules"]),
    )
    return ClockedArray(array, values["clock-ghz"])
