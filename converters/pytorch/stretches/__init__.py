"""Recordings that are too large for the memory, converted one stretch of time after another.

Not here: what is done with a stretch, which is what is done with a recording that fits (`timed`, `untimed`).
"""

from converters.pytorch.stretches.conversion import LargeRecording
from converters.pytorch.stretches.sizes import Sizes
from converters.pytorch.stretches.untimed import LargeExecutionTrace

__all__ = ["LargeExecutionTrace", "LargeRecording", "Sizes"]
