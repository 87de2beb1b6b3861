"""Conversion of recorded PyTorch runs (execution traces, Kineto timelines) to trace files.

`reading` turns the files into the columns of `columns`; all other modules work on the columns.
"""
