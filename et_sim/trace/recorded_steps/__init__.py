"""Recorded steps of pipeline-parallel training as traces: every operation of a rank, with its times.

`table` reads the file, `work` splits each duration into waiting and work, and `program` makes the traces.
"""
