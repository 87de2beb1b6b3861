"""From a recorded PyTorch run to trace files: execution traces and Kineto timelines.

`reading` turns the files into the columns of `columns`; everything else works on the columns.
"""
