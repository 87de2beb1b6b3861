"""A source of steps has an identity, by which its simulated steps are kept."""

from __future__ import annotations

import pytest

from et_sim.goodput.sources import Source
from et_sim.run.options import RunOptions
from et_sim.trace import TraceBuilder, Workload


def test_a_source_without_an_identity_is_a_fault_of_the_program() -> None:
    workload = Workload.of([TraceBuilder().build()])
    with pytest.raises(AssertionError, match="taken for one"):
        Source(lambda: workload, RunOptions(), {}, {}, None, {})
