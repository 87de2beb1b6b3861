"""Programs for GPUs are recorded on the processor, and simulated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recording_here import PROGRAMS, Recording, needs_torch, record

from et_sim.cli import main as simulate
from et_sim.trace import NodeKind, read_workload
from et_sim.workloads.training.expert_loads import tokens_of_experts
from recorder.cli import main
from recorder.launching import MEETING, RECORDED

needs_torch()

WIDTH, BLOCKS = 256, 3


@pytest.fixture(scope="module")
def data_parallel(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("ddp"), "data_parallel.py", world=16)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("sharded"), "sharded.py", "2", world=16)


def test_one_rank_represents_all_if_none_sends(data_parallel: Recording) -> None:
    assert data_parallel.report["roles"] == {"0": "0-15"}
    assert data_parallel.workload.ranks == 16


def test_gradients_of_all_weights_are_reduced_in_buckets(data_parallel: Recording) -> None:
    weights = 64 * 256 + 256 + 256 * 64 + 64 + 2 * 64
    assert data_parallel.report["ranks"][0]["weights"] == weights
    reduced = [row for row in data_parallel.counted() if row[2] == "all_reduce"]
    assert sum(row[4] for row in reduced) == 2 * 4 * weights


def test_buffers_are_broadcast_without_telling_ranks_apart(data_parallel: Recording) -> None:
    assert {row[2] for row in data_parallel.counted()} == {"all_gather", "all_reduce", "broadcast"}
    trace = data_parallel.workload.templates[0]
    assert set(trace.comm_type[trace.kind == NodeKind.COLL].tolist()) == {0, 2}


def test_assumptions_are_reported_with_their_place(data_parallel: Recording) -> None:
    (assumed,) = data_parallel.remarks("assumed")
    assert assumed["place"].startswith("data_parallel.py:")
    assert (assumed["text"], assumed["count"]) == ("0.0 for an unknown value", 2)
    assert data_parallel.remarks("implied wait")


def test_weights_are_gathered_and_gradients_scattered_shard_by_shard(sharded: Recording) -> None:
    shard = WIDTH * 4 * WIDTH // 8 // 2 * 2  # bytes aside, of the two weights of a block on 8 x 2 ranks
    assert [row for row in sharded.counted() if row[1] == "mesh_dp"] == [
        ("backward", "mesh_dp", "all_gather", 3, 3 * 2 * shard),
        ("backward", "mesh_dp", "reduce_scatter", 3, 3 * 4 * shard * 8),
        ("forward", "mesh_dp", "all_gather", 3, 3 * 2 * shard),
    ]


def test_activations_are_reduced_over_tensor_parallel_ranks(sharded: Recording) -> None:
    reduced = {row[0]: row[3:] for row in sharded.counted() if row[1] == "mesh_tp"}
    assert reduced["forward"] == (BLOCKS, BLOCKS * 128 * WIDTH * 2)


def test_products_have_the_operations_of_the_mathematics(sharded: Recording) -> None:
    trace = sharded.workload.templates[0]
    words = np.array(trace.layer_shapes)[trace.layer_shape]
    products = trace.num_ops[[word.startswith("gemm") for word in words]]
    assert len(products) == 6 * BLOCKS - 1  # the first input needs no gradient
    assert int(products.sum()) == (6 * BLOCKS - 1) * 2 * 128 * WIDTH * 4 * WIDTH // 2


def test_gathers_run_on_a_stream_beside_the_kernels(sharded: Recording) -> None:
    trace = sharded.workload.templates[0]
    kernels = set(trace.stream[trace.kind == NodeKind.COMP].tolist())
    gathers = set(trace.stream[trace.kind == NodeKind.COLL].tolist())
    assert len(kernels) >= 2
    assert gathers - {0}


def test_two_recordings_are_the_same_bytes(sharded: Recording, tmp_path: Path) -> None:
    again = record(tmp_path, "sharded.py", "2", world=16, is_forked=False)
    for name in ("job.workload.json", "job.template0.et"):
        assert (again.manifest.parent / name).read_bytes() == (sharded.manifest.parent / name).read_bytes()


def test_two_recordings_of_zero_bubble_are_the_same_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("forked", "started")]
    for folder in folders:
        folder.mkdir()
        is_forked = folder.name == "forked"
        record(folder, "pipelined.py", "ZBVZeroBubble", "2", world=2, is_forked=is_forked)
    first, second = ([path.read_bytes() for path in sorted(folder.iterdir())] for folder in folders)
    assert first == second


def test_the_number_of_ranks_changes_groups_and_shards_only(sharded: Recording, tmp_path: Path) -> None:
    more = record(tmp_path, "sharded.py", "2", world=1024)
    assert len(more.workload.templates[0]) == len(sharded.workload.templates[0])
    assert [row[:4] for row in more.counted()] == [row[:4] for row in sharded.counted()]


def _calls(folder: Path, world: int) -> int:
    """Return the number of function calls of a process that records one rank of `world`."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": "8"}
    count = (
        "import cProfile, pstats, sys; from recorder.process.main import main; profile = cProfile.Profile();"
        " assert profile.runcall(main, sys.argv[1:]) == 0; print(pstats.Stats(profile).total_calls)"
    )
    done = subprocess.run(
        [sys.executable, "-c", count, str(folder / "rank"), "0", "", "0", str(PROGRAMS / "sharded.py"), "8"],
        env=os.environ | ranks | {MEETING: str(folder), RECORDED: "0"},
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout.split()[-1])


def test_recording_costs_as_much_for_65536_ranks_as_for_64(tmp_path: Path) -> None:
    assert _calls(tmp_path, 65536) < 1.1 * _calls(tmp_path, 64)


@pytest.mark.parametrize("name", ["data_parallel", "sharded"])
def test_a_recording_is_simulated_without_problems(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = str(request.getfixturevalue(name).manifest)
    assert simulate(["check", manifest, "--machine", "h100-dgx:16"]) == 0
    assert "no problems found" in capsys.readouterr().out
    assert simulate(["run", manifest, "--machine", "h100-dgx:16", "--out", str(tmp_path / "run")]) == 0
    assert "simulated as 1 actor" in capsys.readouterr().out


def test_one_rank_of_each_stage_of_a_pipeline_is_recorded(tmp_path: Path) -> None:
    recording = record(tmp_path, "pipelined.py", "1F1B", "2", world=8)
    assert recording.report["roles"] == {"0": "0-6/2", "1": "1-7/2"}
    activations = 4 * (2 * 64 * 4)  # of the micro-batches of a step
    sent = [
        int(trace.comm_bytes[(trace.kind == NodeKind.SEND) & (trace.comm_bytes == 512)].sum())
        for trace in recording.workload.templates
    ]
    assert sent == [2 * activations, 2 * activations]  # forward from the first stage, backward from the last


def test_an_exception_inside_backward_gives_its_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["--world", "8", "-o", str(tmp_path / "job.workload.json"), str(PROGRAMS / "broken.py")]
    assert main(command) == 1
    err = capfd.readouterr().err
    assert "ValueError: wrong in the middle" in err
    assert "broken.py: the program ended with status 1 on rank 0" in err


def test_sums_averages_and_extremes_of_known_values_are_correct(tmp_path: Path) -> None:
    recording = record(tmp_path, "reductions.py", world=8)
    assert recording.report["ranks"][0]["weights"] == 0
    assert not recording.remarks("assumed")


@pytest.mark.parametrize(
    ("kind", "operator", "line"),
    [("mask", "index", 9), ("unique", "_unique2", 11), ("nonzero", "nonzero", 13)],
)
def test_an_unknown_size_is_refused_with_its_line(
    kind: str, operator: str, line: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["--world", "8", "-o", str(tmp_path / "job.workload.json"), str(PROGRAMS / "unsized.py"), kind]
    assert main(command) == 1
    err = capfd.readouterr().err
    assert f"unsized.py:{line}: the size of the result of {operator} depends on unknown values" in err
    assert not list(tmp_path.iterdir())


def test_a_mask_that_is_known_chooses_as_many(tmp_path: Path) -> None:
    recording = record(tmp_path, "unsized.py", "known", world=8)
    assert recording.remarks("synchronised")
    assert not recording.remarks("assumed")


@pytest.mark.parametrize(("kind", "again"), [("reentrant", 5), ("checkpoints", 3), ("composable", 3)])
def test_checkpoints_compute_a_block_again(kind: str, again: int, tmp_path: Path) -> None:
    trace = record(tmp_path, "remembering.py", kind, "64", "32", world=8).workload.templates[0]
    recomputed = [name for name in map(trace.node_name, range(len(trace))) if "recompute" in name]
    assert len(recomputed) == 2 * 4 * again  # steps, blocks; unused values are left out


EXPERTS, TOKENS, TOKEN_BYTES = 16, 96, 64 * 4


def test_uneven_experts_are_those_of_a_plan_with_the_same_skew(tmp_path: Path) -> None:
    skew = ("--expert-skew", "zipf:1.2", "--expert-seed", "3")
    recording = record(tmp_path, "experts.py", "routed", str(TOKENS), world=8, options=skew)
    loads = np.array(tokens_of_experts("zipf:1.2", 3, EXPERTS, 1, TOKENS)).reshape(8, -1).sum(1)
    for rank in range(8):
        trace = recording.workload.trace(rank)
        texts = [trace.split_texts[split] for split in trace.splits[trace.kind == NodeKind.COLL]]
        sent = [[int(word) for word in text.split()] for text in texts]
        there, back = (loads * TOKEN_BYTES).tolist(), [int(loads[rank]) * TOKEN_BYTES] * 8
        # Counts; tokens; results of experts; and the gradients on the same way back.
        assert sent[1:] == [there, back, there]
    assert simulate(["check", str(recording.manifest), "--machine", "h100-dgx:8"]) == 0


def test_another_seed_makes_other_experts_busy_and_the_same_one_does_not(tmp_path: Path) -> None:
    written = []
    for at, seed in enumerate(("3", "4", "3")):
        (tmp_path / str(at)).mkdir()
        skew = ("--expert-skew", "zipf:1.2", "--expert-seed", seed)
        recording = record(tmp_path / str(at), "experts.py", "routed", str(TOKENS), world=4, options=skew)
        written.append((recording.manifest.parent / "job.template0.et").read_bytes())
    assert written[0] == written[2] != written[1]


def test_even_experts_need_one_rank(tmp_path: Path) -> None:
    recording = record(tmp_path, "experts.py", "routed", str(TOKENS), world=8)
    assert recording.report["roles"] == {"0": "0-7"}
    assert recording.remarks("assumed")[0]["text"] == "values are spread evenly over the bins"


@pytest.mark.parametrize(
    ("skew", "message"),
    [
        (("--expert-skew", "zipf:x"), "expert_skew is 'zipf:x'"),
        (("--expert-skew", "nowhere.json"), "--expert-skew is 'nowhere.json'"),
        (("--expert-seed", "3"), "--expert-seed is 3 without zipf"),
        (("--expert-skew", "zipf:1.2"), "the program counts no choices of a router"),
    ],
)
def test_a_skew_that_means_nothing_is_refused(
    skew: tuple[str, ...], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = ("--world", "8", "-o", str(tmp_path / "job.workload.json"))
    assert main([*output, *skew, str(PROGRAMS / "reductions.py")]) == 2
    assert message in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_loads_of_another_number_of_experts_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loads = tmp_path / "loads.json"
    loads.write_text("[1, 2, 3]")
    output = ("--world", "8", "-o", str(tmp_path / "job.workload.json"), "--expert-skew", str(loads))
    assert main([*output, str(PROGRAMS / "experts.py"), "routed", "96"]) == 1
    assert "does not list loads of 16 experts" in capfd.readouterr().err


def test_values_are_known_as_long_as_they_are_true(tmp_path: Path) -> None:
    recording = record(tmp_path, "known_values.py", world=4)
    assumed = [remark["place"].rpartition(":")[0] for remark in recording.remarks("assumed")]
    assert assumed == ["known_values.py"] * 4


@pytest.mark.parametrize(
    ("work", "nodes"),
    [("multiply", ["setup ones", "setup mm", "setup add"]), ("wait", ["setup ones", "setup add"])],
)
def test_threads_that_work_are_recorded_and_reported(work: str, nodes: list[str], tmp_path: Path) -> None:
    recording = record(tmp_path, "threads.py", work, world=2)
    trace = recording.workload.templates[0]
    assert [trace.node_name(row) for row in range(len(trace.kind))] == nodes
    assert bool(recording.remarks("threads")) == (work == "multiply")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--local-world", "0"), ("--step", "-1"), ("-o", "job.json")],
)
def test_an_option_that_means_nothing_is_refused_before_the_program_runs(
    option: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"--world": "2", "-o": "job.workload.json"} | {option: value}
    words = [word for pair in options.items() for word in pair]
    assert main([*words, str(PROGRAMS / "asking.py")]) == 2
    assert value in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("sys.exit('no such data set')", "no such data set"),
        ("os._exit(0)", "left without an end on rank 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL on rank 0"),
    ],
)
def test_a_program_that_ends_early_is_reported(
    ending: str, text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os, signal, sys\n{ending}\n")
    assert main(["--world", "2", "-o", str(tmp_path / "job.workload.json"), str(script)]) == 1
    assert text in capfd.readouterr().err


def test_termination_of_the_command_ends_the_recorded_process(tmp_path: Path) -> None:
    script, output = tmp_path / "train.py", tmp_path / "job.workload.json"
    script.write_text("import os, time\nos.write(1, b'started')\ntime.sleep(120)\n")
    command = [sys.executable, "-m", "recorder", "--world", "2", "-o", str(output), str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(len("started")) == b"started"
        process.terminate()
        assert process.stdout.read() == b""  # the pipe has no writer left
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [script]


def test_products_of_complex_numbers_are_four_of_real_ones(tmp_path: Path) -> None:
    script = tmp_path / "complex.py"
    script.write_text(
        "import torch\n"
        "for dtype in (torch.float32, torch.complex64):\n"
        "    left, right = (torch.ones(3, 16, 16, dtype=dtype, device='cuda') for _ in range(2))\n"
        "    left @ right, left[0] @ right[0], left[0] @ right[0, 0]\n"
    )
    assert main(["--world", "2", "-o", str(tmp_path / "job.workload.json"), str(script)]) == 0
    trace = read_workload(tmp_path / "job.workload.json").templates[0]
    products = [
        int(trace.num_ops[row])
        for row in range(len(trace.kind))
        if trace.node_name(row) in ("setup bmm", "setup mm", "setup mv")
    ]
    real = [2 * 3 * 16**3, 2 * 16**3, 2 * 16**2]
    assert products == [*real, *(4 * count for count in real)]


def test_inference_mode_computes_like_no_grad(tmp_path: Path) -> None:
    script = tmp_path / "infer.py"
    script.write_text(
        "import torch\n"
        "model, data = torch.nn.Linear(64, 256).cuda(), torch.ones(32, 64, device='cuda')\n"
        "for mode in (torch.no_grad, torch.inference_mode):\n"
        "    with mode():\n"
        "        model(data)\n"
    )
    assert main(["--world", "2", "-o", str(tmp_path / "job.workload.json"), str(script)]) == 0
    trace = read_workload(tmp_path / "job.workload.json").templates[0]
    products = [int(trace.num_ops[row]) for row in range(len(trace.kind)) if "addmm" in trace.node_name(row)]
    assert products == [2 * 32 * 64 * 256] * 2


def test_queries_about_tensors_of_cuda_are_answered_as_on_cuda(tmp_path: Path) -> None:
    recording = record(tmp_path, "asking.py", world=2)
    of_device = [remark["place"].rpartition(":")[0] for remark in recording.remarks("synchronised")]
    assert of_device == ["asking.py"] * 2  # norms on the device, made a tensor; a sum that is printed
    assert recording.remarks("changed")
