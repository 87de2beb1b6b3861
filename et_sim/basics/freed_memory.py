"""Memory that a process has freed, and keeps for its next arrays.

The C library of GNU returns memory at the end of its heap to the system at once, which clears it before it is
used again. Views of millions of rows make arrays of one size block after block, and spent a fifth to a third
of their processor time on that.
"""

from __future__ import annotations

import sys

MOST_KEPT = 64 << 20  # bytes at the end of the heap
LARGEST_IN_HEAP = 32 << 20  # bytes of an array; the library permits no more
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as in malloc.h


def keep_freed_memory() -> None:
    """Keep some of the memory that is freed, where the C library is that of GNU."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # others may lack it
    if set_option is not None:
        set_option(TRIM_THRESHOLD, MOST_KEPT)
        set_option(MMAP_THRESHOLD, LARGEST_IN_HEAP)
