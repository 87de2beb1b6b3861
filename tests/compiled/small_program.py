"""A program with a function to compile, run by the tests of this folder in processes of their own.

    python small_program.py SECONDS [named]

It prints whether the call was compiled before, its result, whether it is compiled now, and where code is.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from et_sim.compiled.compile_status import CompileStatus
from et_sim.compiled.decorators import compiled
from et_sim.compiled.entry_points import entry, watching_compilation
from et_sim.compiled.store import cache_directory

SECONDS = [0.0]  # the estimated time of a call


@compiled(forceinline=True)
def doubled(value: Any) -> Any:
    return 2 * value


@entry(what="the sum", seconds=lambda *_: SECONDS[0])
def quadrupled_sum(values: Any) -> int:
    total = 0
    for index in range(len(values)):
        total += doubled(doubled(values[index]))
    return total


@entry(what="the impossible", seconds=lambda *_: SECONDS[0])
def named(values: Any) -> int:
    return int(values[0]) * (len(globals()) > 0)


def __getattr__(name: str) -> Any:
    if name == "ends_the_process":  # the name used by the test of a process that ends while it compiles
        os._exit(3)
    raise AttributeError(name)


def main() -> None:
    import small_program  # the worker imports it by that name, too

    values = np.array([1, 2])
    function = small_program.named if "named" in sys.argv else small_program.quadrupled_sum
    small_program.SECONDS[0] = float(sys.argv[1])
    with watching_compilation(CompileStatus("small")):
        output = (function.is_compiled(values), function(values), function.is_compiled(values))
    sys.stdout.write(f"{output[0]} {output[1]} {output[2]} {cache_directory()}\n")


if __name__ == "__main__":
    main()
