"""Dependencies of a job of two layers under FSDP2, by hand, and the effect of its prefetch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from recording_here import needs_torch, record

import et_sim
from et_sim.trace import NodeKind, Trace

needs_torch()

# The second step of two blocks: its nodes in the order of issue, and their dependencies other than the
# previous kernel on the stream. Numbers count operators of a name; `old` is of the step before.
KERNELS, COPY, GATHER, SCATTER = range(4)
BLOCK = ("native_layer_norm", "addmm", "gelu", "addmm", "add")
BLOCK_BACK = ("mm", "mm", "sum", "gelu_backward", "mm", "mm", "sum", "native_layer_norm_backward")
PACK, UNPACK = "all_gather_copy_in", "split_with_sizes_copy"
ORACLE: Sequence[tuple[int, str, str | None]] = (
    (KERNELS, "randn", None),
    # Weights are gathered on streams of their own; those of the root's forward call wait for the kernels.
    (COPY, PACK, "randn 0"),
    (GATHER, "all_gather", f"randn 0, {PACK} 0"),
    (KERNELS, UNPACK, "randn 0, all_gather 0"),
    *((KERNELS, name, None) for name in BLOCK),
    # The second block's weights wait for no kernel.
    (COPY, PACK, f"{PACK} 0"),
    (GATHER, "all_gather", f"all_gather 0, {PACK} 1"),
    (KERNELS, UNPACK, "add 0, all_gather 1"),
    *((KERNELS, name, None) for name in (*BLOCK, "pow", "mean", "ones_like", "div", "pow", "mul", "mul")),
    # Backward: memory of the gather before is used again once it has been unpacked.
    (COPY, PACK, f"{PACK} 1, {UNPACK} 1"),
    (GATHER, "all_gather", f"all_gather 1, {UNPACK} 1, {PACK} 2"),
    (KERNELS, UNPACK, "mul 1, all_gather 2"),
    # Prefetch: the first block's weights are gathered before the second one's gradients are begun.
    (COPY, PACK, f"{PACK} 2, {UNPACK} 2"),
    (GATHER, "all_gather", f"all_gather 2, {UNPACK} 2, {PACK} 3"),
    (KERNELS, "mm", f"{UNPACK} 2"),
    *((KERNELS, name, None) for name in (*BLOCK_BACK[1:], "add", "chunk_cat")),
    (SCATTER, "reduce_scatter", "chunk_cat 0"),
    (KERNELS, UNPACK, "chunk_cat 0, all_gather 3"),
    *((KERNELS, name, None) for name in BLOCK_BACK),
    # Memory of gradients is used again once they have been reduced; the optimizer waits for the last ones.
    (KERNELS, "chunk_cat", "native_layer_norm_backward 1, reduce_scatter 0"),
    (SCATTER, "reduce_scatter", "reduce_scatter 0, chunk_cat 1"),
    (KERNELS, "_foreach_add_", "chunk_cat 1, reduce_scatter 1"),
    (KERNELS, "_fused_adamw_", None),
)


def _expected() -> list[tuple[str, set[str]]]:
    counted: Counter[str] = Counter()
    results: list[tuple[str, set[str]]] = []
    last = ""
    for stream, name, waits in ORACLE:
        label = f"{name} {counted[name]}"
        counted[name] += 1
        results.append((label, set(waits.split(", ")) if waits else {last} - {""}))
        last = label if stream == KERNELS else last
    return results


def _recorded(trace: Trace) -> list[tuple[str, set[str]]]:
    counted: Counter[str] = Counter()
    labels: list[str] = []
    for row in range(len(trace)):
        name = trace.node_name(row).split()[-1]
        labels.append(f"{name} {counted[name]}")
        counted[name] += 1
    return [(label, {labels[parent] for parent in trace.parents(row)}) for row, label in enumerate(labels)]


def test_two_layers_wait_as_by_hand(tmp_path: Path) -> None:
    options = ("--step", "1")
    recording = record(tmp_path, "remembering.py", "sharded", "64", "32", "2", world=8, options=options)
    assert _recorded(recording.workload.templates[0]) == _expected()


def test_a_step_without_prefetch_takes_longer_and_does_the_same_work(tmp_path: Path) -> None:
    results = {}
    for kind in ("sharded", "unfetched"):
        (tmp_path / kind).mkdir()
        arguments, options = (kind, "4096", "8192"), ("--step", "1")
        recording = record(tmp_path / kind, "remembering.py", *arguments, world=64, options=options)
        trace = recording.workload.templates[0]
        work = trace.num_ops[trace.kind == NodeKind.COMP].sum(), trace.comm_bytes.sum()
        results[kind] = work, et_sim.simulate(recording.workload, machine="h100-dgx:64").makespan_ns
    assert results["sharded"][0] == results["unfetched"][0]
    assert results["sharded"][1] < results["unfetched"][1]


@pytest.mark.parametrize("host", ["20us", "2us"])
def test_a_slow_host_holds_the_kernels_up(host: str, tmp_path: Path) -> None:
    options = ("--step", "1", "--host-time", host)
    recording = record(tmp_path, "remembering.py", "plain", "64", "32", "2", world=8, options=options)
    trace = recording.workload.templates[0]
    kernels = len(trace) // 2
    makespan = et_sim.simulate(recording.workload, machine="h100-dgx:8").makespan_ns
    assert makespan > kernels * int(host.removesuffix("us")) * 1000
