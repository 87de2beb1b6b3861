"""Recordings that are too large for the memory, converted one stretch of time after another.

Not here: what is done with a stretch, which is what is done with a recording that fits (`timed`).
"""

from converters.pytorch.stretches.conversion import LargeRecording, Sizes
from converters.pytorch.stretches.tables import whole_host

__all__ = ["LargeRecording", "Sizes", "whole_host"]
