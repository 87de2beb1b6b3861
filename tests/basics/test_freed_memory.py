"""Freed memory is used again, in place of new memory of the system."""

from __future__ import annotations

import mmap
import platform
import subprocess
import sys

import pytest

ARRAYS, BYTES = 3, 8 << 20
PROGRAM = """
import ctypes, resource, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages would be few
import numpy as np
from et_sim.basics.starting import keep_freed_memory
if "keep" in sys.argv:
    keep_freed_memory()
def use(times):
    for _ in range(times):
        _ = [np.ones({bytes}, np.int8) for _ in range({arrays})]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use(2)
before = faults()
use(10)
print(faults() - before)
"""


def _faults(*arguments: str) -> int:
    program = PROGRAM.format(bytes=BYTES, arrays=ARRAYS)
    command = [sys.executable, "-c", program, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of the C library of GNU")
def test_arrays_that_are_made_again_and_again_take_no_new_pages() -> None:
    assert _faults("keep") < ARRAYS * (BYTES // mmap.PAGESIZE) // 10 < _faults()
