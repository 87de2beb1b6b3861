"""Golden cases whose functions are compiled by public Numba alone, in a process with a cache of its own.

    python public_goldens.py FUNCTION CASE ...

Only FUNCTION is compiled, in this process, as soon as it is ordered. Every case runs twice: the first run
orders the code of the second one. Each prints whether its ranks finish as the reference's do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from et_sim.compiled import compile_queue, numba_version, worker
from et_sim.compiled.compile_status import CompileStatus
from et_sim.compiled.entry_points import watching_compilation
from et_sim.doctor import installation


def main(function: str, cases: list[str]) -> None:
    def make_here(directory: Path, _is_urgent: bool) -> None:
        for file, content in compile_queue.orders(directory):
            if file.name.startswith(f"{function}-"):
                worker.make(content, is_patient=False)

    numba_version.CHECKED = "<0.1"
    compile_queue._start_worker = make_here
    with watching_compilation(CompileStatus("goldens")):
        for name in cases * 2:
            case = json.loads((installation.CASES / name).read_text())
            sys.stdout.write(f"{installation._simulated(case) == case['finish_ns']}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
