"""Parts that many scripts contain are recorded on any rank, or refused with the line and a remedy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recording_here import PROGRAMS, Recording, needs_torch, record

from recorder.cli import main

needs_torch()

CONTRASTED = 4 * 16  # values
PARTS = "ddp,offload,contrast,settings,mask,empty,save,recurrent,packed,own,batch,ctc,graph"


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Return the recording of a rank that is neither the first one nor a root, beside the root."""
    return record(tmp_path_factory.mktemp("common"), "common.py", PARTS, world=8, options=("--ranks", "0,5"))


def shapes(recording: Recording, template: int = 0) -> list[str]:
    trace = recording.workload.templates[template]
    return np.array(trace.layer_shapes)[trace.layer_shape].tolist()


def names(recording: Recording, word: str) -> list[str]:
    trace = recording.workload.templates[0]
    return [name for row in range(len(trace)) if word in (name := trace.node_name(row))]


def test_a_rank_on_any_device_does_the_same_as_the_first(common: Recording) -> None:
    first, other = common.report["ranks"]
    assert (first["rank"], other["rank"]) == (0, 5)
    assert first["nodes"] == other["nodes"]
    assert first["collectives"] == other["collectives"]


def test_weights_of_fsdp1_that_rest_on_the_host_are_gathered_and_gradients_scattered(
    common: Recording,
) -> None:
    weights, statistics = 2 * (64 * 64 + 64), 2 * 8 + 1  # of the normalised batch
    moved = [(*row[:1], *row[2:]) for row in common.counted()]
    assert ("forward", "all_gather", 3, 4 * weights // 8 + 4 * (statistics + CONTRASTED)) in moved
    assert ("backward", "reduce_scatter", 2, 4 * weights + 4 * 8 * CONTRASTED) in moved


def test_gradients_of_gathered_tensors_are_scattered_as_with_nccl(common: Recording) -> None:
    kinds = [row[2:] for row in common.counted() if row[2] in ("all_to_all", "scatter")]
    assert not [row for row in kinds if row[2] >= 4 * CONTRASTED]


def test_choices_of_a_router_are_even_in_every_count(common: Recording) -> None:
    products = [shape for shape in shapes(common) if shape.startswith("gemm")]
    assert [shape.split()[1] for shape in products if shape.endswith(" 32 32")].count("8") == 2
    texts = [remark["text"] for remark in common.remarks("assumed")]
    assert "values are spread evenly over the bins" in texts


def test_products_without_rows_are_no_kernels_and_without_depth_write_zeros(common: Recording) -> None:
    assert not [shape for shape in shapes(common) if "0" in shape.split()]


def test_products_of_recurrent_cells_are_counted_step_by_step(common: Recording) -> None:
    """Count inputs, states, and gradients of both weights and of all states but the first."""
    counted = Counter(shapes(common))
    for gates in (3 * 32, 4 * 32):
        forward = (f"gemm 4 {gates} 16", f"gemm 4 {gates} 32")
        weights = (f"gemm {gates} 16 4", f"gemm {gates} 32 4")
        assert [counted[shape] for shape in (*forward, *weights)] == [5] * 4
        assert counted[f"gemm 4 32 {gates}"] == 4


def test_a_step_of_packed_sequences_has_those_that_are_as_long(common: Recording) -> None:
    counted = Counter(shapes(common))
    assert [counted[f"gemm {rows} 32 8"] for rows in (4, 3, 2, 1)] == [1, 2, 0, 2]


def test_a_kernel_of_the_program_has_the_operations_of_its_registered_formula(common: Recording) -> None:
    trace = common.workload.templates[0]
    (row,) = (row for row in range(len(trace)) if trace.node_name(row).endswith(" outer"))
    assert (trace.num_ops[row], trace.tensor_bytes[row]) == (3 * 5 * 7, 4 * (5 + 7 + 5 * 7))


def test_batch_normalisation_over_ranks_gathers_statistics(common: Recording) -> None:
    assert len(names(common, "batch_norm_stats")) == 1
    assert len(names(common, "batch_norm_backward_reduce")) == 1


def test_a_graph_runs_its_kernels_once_for_each_replay(common: Recording) -> None:
    replays = [row for row in common.remarks("changed") if "graph" in row["text"]]
    assert [row["count"] for row in replays] == [2]
    assert len([shape for shape in shapes(common) if shape == "gemm 4 16 16"]) == 3


def test_checkpoints_are_not_written(common: Recording) -> None:
    assert "checkpoint.save writes no files" in [row["text"] for row in common.remarks("changed")]


def test_a_member_without_its_root_names_the_ranks_to_record(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = ("--world", "8", "--ranks", "5", "-o", str(tmp_path / "job.workload.json"))
    assert main([*output, str(PROGRAMS / "common.py"), "settings"]) == 2
    err = capfd.readouterr().err
    assert "rank 5 needs a value of rank 0, which is not recorded (record both: --ranks 0,5" in err


def test_tensors_in_circles_of_objects_end_at_the_same_node_on_every_rank(tmp_path: Path) -> None:
    recording = record(tmp_path, "common.py", "cycles", world=8, options=("--ranks", "0,5"))
    assert recording.report["roles"] == {"0": "0-7"}


def test_modules_that_are_gone_give_no_names_to_later_ones(tmp_path: Path) -> None:
    recording = record(tmp_path, "common.py", "short", world=8, options=("--ranks", "0,5"))
    trace = recording.workload.templates[0]
    products = [
        trace.node_name(row).split()[3:-1] for row in range(len(trace)) if "mm" in trace.node_name(row)
    ]
    assert products == [["0"], ["1"], []] * 20
    assert recording.report["ranks"][0]["weights"] == 20 * 3 * (16 * 16 + 16)


def test_ranks_of_a_large_ring_are_one_role(tmp_path: Path) -> None:
    recording = record(tmp_path, "common.py", "ring", world=128)
    assert recording.report["roles"] == {"0": "0-127"}
    trace = recording.workload.templates[0]
    assert (trace.comm_dst[trace.comm_dst != 0].tolist(), recording.workload.ranks) == ([1], 128)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("sparse", "sparse gradients are not recorded: leave out sparse=True"),
        ("flexible", "FlexAttention is not recorded: use scaled_dot_product_attention"),
        ("nested", "nested tensors are not recorded: pad the sequences"),
    ],
)
def test_refusals_name_the_line_and_a_remedy(
    part: str, text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = ("--world", "2", "-o", str(tmp_path / "job.workload.json"))
    assert main([*output, str(PROGRAMS / "common.py"), part]) == 1
    err = capfd.readouterr().err
    line = next(line for line in err.splitlines() if text in line)
    assert "common.py:" in line


def test_attention_within_modules_is_the_kernel_that_cuda_would_choose(tmp_path: Path) -> None:
    recording = record(tmp_path, "common.py", "layer", world=2)
    attention = [shape for shape in shapes(recording) if shape.startswith("attention")]
    assert attention == ["attention 2 4 4 8 8 16 16", "attention_backward 2 4 4 8 8 16 16"]
    assert not names(recording, "bmm")


def test_launches_of_triton_are_refused_with_a_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Take a class of Triton's name in place of Triton, which needs a GPU's driver."""
    package = tmp_path / "site-packages" / "triton" / "runtime"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "jit.py").write_text(
        "class JITFunction:\n    __name__ = 'add'\n    def run(self, *given): pass\n", encoding="utf-8"
    )
    output = ("--world", "2", "-o", str(tmp_path / "job.workload.json"))
    assert main([*output, str(PROGRAMS / "common.py"), "launched", str(package.parents[1])]) == 1
    line = next(line for line in capfd.readouterr().err.splitlines() if "the Triton kernel add" in line)
    assert "common.py:" in line
    assert "torch.library.custom_op and register_fake" in line


def test_work_before_an_error_can_be_kept(tmp_path: Path) -> None:
    recording = record(tmp_path, "common.py", "ddp,sparse", world=2, options=("--keep",))
    (ended,) = recording.remarks("ended early")
    kept: dict[str, Any] = recording.report["ranks"][0]["nodes"]
    assert "by an error of the program" in ended["text"]
    assert kept["collective"] > 0
