"""A recorded process that writes the operators whose operations differ from those of PyTorch's counter.

python flop_worker.py OUTPUT FOLDER WORLD PROGRAM ARGUMENTS…
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from recorder.launching import KEEP, MEETING, RECORDED
from recorder.process import operators
from recorder.process.costs import Cost, cost_of
from recorder.process.main import main

counted: Counter[str] = Counter()


def compared(operator: str, given: Any, result: Any) -> Cost | None:
    """Return the cost of a call, and count whether PyTorch's formula agrees."""
    cost = cost_of(operator, given, result)
    formula = flop_registry.get(getattr(torch.ops.aten, operator, None))
    if formula is not None and given:
        theirs = formula(*given, out_val=result)
        ours = 0 if cost is None else cost.operations
        kind = "causal" if cost is not None and "causal" in cost.shape else operator
        counted["equal" if theirs == ours else f"{kind}: {ours}, {theirs}"] += 1
    return cost


if __name__ == "__main__":
    output, folder, world, program, *arguments = sys.argv[1:]
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ |= ranks | {MEETING: folder, RECORDED: "0", KEEP: "yes"}
    operators.cost_of = compared
    main([str(Path(folder) / "rank"), "0", "", "0", program, *arguments])
    Path(output).write_text(json.dumps(counted), encoding="utf-8")
    os._exit(0)
