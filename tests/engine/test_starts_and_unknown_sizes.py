"""Ranks begin at the start of their traces, and communication of unknown size takes its recorded time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import RING_4, system
from msgspec.structs import replace

import et_sim
from et_sim.basics.errors import TraceError
from et_sim.trace import Trace, TraceBuilder, Workload, decode, encode_trace
from et_sim.trace.columns import BIT
from et_sim.trace.preflight import find_problems

SYSTEM = system(profile="corrected")


def beginning_at(start_ns: int) -> Trace:
    build = TraceBuilder()
    kernel = build.compute("kernel", nanos=100)
    build.collective("all_reduce", 4096, after=[kernel])
    trace = replace(build.build(), start_ns=start_ns)
    again = decode(encode_trace(trace))
    assert again.start_ns == start_ns
    return again


def finish(traces: list[Trace], **system: Any) -> list[int]:
    both = [
        et_sim.simulate(Workload.of(traces), system=SYSTEM | system, network=RING_4, fold=fold)
        for fold in (True, False)
    ]
    assert both[0].finish_ns.tolist() == both[1].finish_ns.tolist()
    assert both[0].idle_ns.tolist() == both[1].idle_ns.tolist()
    return both[0].finish_ns.tolist()


def test_a_rank_that_begins_later_makes_the_others_wait() -> None:
    together = finish([beginning_at(0)] * 4)
    apart = finish([beginning_at(start) for start in (0, 0, 7000, 0)])
    assert max(apart) == max(together) + 7000
    assert min(apart) > max(together)


def test_the_time_before_a_rank_begins_is_idle_and_the_summary_has_the_spread_of_starts() -> None:
    result = et_sim.simulate(
        Workload.of([beginning_at(start) for start in (0, 0, 7000, 0)]), system=SYSTEM, network=RING_4
    )
    assert result.idle_ns.tolist() == [0, 0, 7000, 0]
    assert result.manifest["uneven"]["late_ns"] == 7000


def test_a_delay_of_the_system_file_comes_on_top_of_the_recorded_start() -> None:
    plain = finish([beginning_at(start) for start in (0, 0, 7000, 0)])
    delayed = finish(
        [beginning_at(start) for start in (0, 0, 7000, 0)], stragglers=[{"ranks": "2", "delay": 1000}]
    )
    assert max(delayed) == max(plain) + 1000


def test_a_start_that_is_no_time_is_refused() -> None:
    content = encode_trace(replace(TraceBuilder().build(), start_ns=1 << 62))
    with pytest.raises(TraceError, match="has an invalid start of the rank"):
        decode(content)


def unsized(nanos: int) -> Trace:
    """Return a kernel, a collective of unknown size, and one whose size is known."""
    build = TraceBuilder()
    kernel = build.compute("kernel", nanos=100)
    unknown = build.collective("all_gather", 0, nanos=nanos, after=[kernel])
    build.collective("all_reduce", 4096, after=[unknown])
    trace = build.build()
    present = trace.present.copy()
    present[1] = (int(present[1]) & ~BIT["comm_size"]) | BIT["comm_size_unknown"]
    return decode(encode_trace(replace(trace, present=present, is_unsized=np.array([False, True, False]))))


def test_a_collective_of_unknown_size_takes_its_recorded_time_and_is_counted() -> None:
    traces = [unsized(1000), unsized(5000), unsized(1000), unsized(1000)]
    together = finish([beginning_at(0)] * 4)
    assert max(finish(traces)) == max(together) + 5000
    result = et_sim.simulate(Workload.of(traces), system=SYSTEM, network=RING_4)
    [output] = [
        warning["text"] for warning in result.manifest["warnings"] if "unknown size" in warning["text"]
    ]
    assert output == (
        "4 of 8 collectives and messages are of unknown size and take their recorded time whatever the "
        'network; the first is node 1 "all_gather"'
    )
    assert not find_problems(Workload.of(traces))


def test_communication_of_no_type_has_a_kind_of_its_own_and_counts_as_communication() -> None:
    trace = unsized(1000)
    present = trace.present.copy()
    present[1] = int(present[1]) & ~BIT["comm_type"]
    traces = [replace(trace, present=present)] * 4
    result = et_sim.simulate(Workload.of(traces), system=SYSTEM, network=RING_4)
    assert result.coverage["nodes_by_kind"] == {"compute": 4, "all_reduce": 4, "communication": 4}
    assert result.exposed_comm_ns.min() >= 1000
    assert not find_problems(Workload.of(traces))
