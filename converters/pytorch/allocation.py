"""Memory of large arrays that are no longer needed goes back to the system.

Where Python runs on glibc, blocks above a threshold do so by themselves, but glibc raises the threshold to
the largest block it ever saw freed, up to 32 MiB; from then on the holes between arrays stay. A fixed
threshold saves a tenth of the peak of a large conversion.

Not here: what is kept in memory.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 1 << 20


def give_back_freed_arrays() -> None:
    """Fix the threshold for this process; does nothing without glibc."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
