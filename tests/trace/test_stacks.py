"""Stacks of traces: their content, and the traces that readers make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from et_sim.trace import TraceBuilder, Workload, read_workload, write_workload
from et_sim.trace.columns import Trace
from et_sim.trace.stack import Templates, TraceBlock, stacks


def _program(number: int) -> Trace:
    build = TraceBuilder()
    first = build.compute(f"kernel {number % 2}", micros=number + 1)
    shared = build.collective("all_reduce", 1 << 10, group=str(number % 3 + 1), after=[first])
    build.send(number + 1, 64, tag=number, after=[first, shared], ctrl_after=[first])
    return build.build()


PROGRAMS = [*map(_program, range(5)), TraceBuilder().build(), _program(6)]


def _is_same(one: Any, two: Any) -> bool:
    return np.array_equal(one, two) if isinstance(one, np.ndarray) else bool(one == two)


def _differing(one: Trace, two: Trace) -> list[str]:
    names = {*structs.asdict(one)} - {"tensors", "source", "version"}
    return [name for name in sorted(names) if not _is_same(getattr(one, name), getattr(two, name))]


def test_traces_of_a_block_are_those_it_was_made_of() -> None:
    made = TraceBlock.of(PROGRAMS).stack().traces
    assert [_differing(one, two) for one, two in zip(PROGRAMS, made, strict=True)] == [[]] * len(PROGRAMS)


def test_files_that_are_read_together_are_those_that_were_written(tmp_path: Path) -> None:
    write_workload(Workload.of(PROGRAMS), tmp_path / "a")
    workload = read_workload(tmp_path / "a")
    read = [workload.trace(rank) for rank in range(len(PROGRAMS))]
    assert [_differing(one, two) for one, two in zip(PROGRAMS, read, strict=True)] == [[]] * len(PROGRAMS)


def test_a_stack_has_the_rows_of_its_traces() -> None:
    (stack,) = stacks(PROGRAMS)
    for _, trace, rows in stack.parts():
        own = range(len(trace))
        names = [stack.trace.node_name(rows.start + row) for row in own]
        groups = [stack.trace.group_names[number] for number in stack.trace.group[rows]]
        assert names == [trace.node_name(row) for row in own]
        assert groups == [trace.group_names[number] for number in trace.group]
        assert stack.own_texts["group"][rows].tolist() == trace.group.tolist()
        for row in own:
            assert (stack.trace.parents(rows.start + row) - rows.start).tolist() == trace.parents(
                row
            ).tolist()


def test_templates_stack_their_traces_once() -> None:
    workload = Workload.of(PROGRAMS)
    assert workload.stacks() is workload.stacks()
    assert [*stacks(workload.templates)] == [*workload.stacks()]
    assert workload.templates[-1] is PROGRAMS[-1]
    assert workload.nodes_per_template.tolist() == [len(trace) for trace in PROGRAMS]


def test_templates_of_several_stacks_are_numbered_through() -> None:
    parts = [TraceBlock.of(PROGRAMS[:3]).stack(), TraceBlock.of(PROGRAMS[3:]).stack()]
    templates = Templates(stacks=parts)
    assert [stack.numbers for stack in templates.stacks()] == [range(3), range(3, 7)]
    assert [len(trace) for trace in templates] == [len(trace) for trace in PROGRAMS]
    assert templates[4] is templates[4]
    assert [len(trace) for trace in templates[2:4]] == [3, 3]


def test_common_properties_of_traces_delimit_stacks() -> None:
    alike = [0, 0, 1, 1, 1, 2, 2]
    assert [stack.numbers for stack in stacks(PROGRAMS, alike)] == [range(2), range(2, 5), range(5, 7)]
