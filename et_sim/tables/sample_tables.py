"""The table of samples that et-sim run --samples writes."""

from __future__ import annotations

from et_sim.tables.declaration import Table, columns

SAMPLES = Table(
    name="samples",
    about="one row for every sample of the step, and for each cause of variation that is left out; "
    "sample by sample",
    writer="et_sim.timeline.contents.samples:samples_content",
    remedy="et-sim run JOB --samples 100 writes them",
    columns=columns("""
        sample int64: its number, from 0
        without word: the cause that is left out; "nothing": all of them vary
        step_ns int64: when the last rank finished
    """),
)
