"""Recordings that are too large for the memory, converted one window of time after another.

Not here: what is done with a window, which is what is done with a recording that fits (`timed`, `untimed`).
"""

from converters.pytorch.windows.conversion import LargeRecording
from converters.pytorch.windows.sizes import Sizes
from converters.pytorch.windows.untimed import LargeExecutionTrace

__all__ = ["LargeExecutionTrace", "LargeRecording", "Sizes"]
