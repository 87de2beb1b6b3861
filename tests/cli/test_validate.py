"""`et-sim validate` predicts rows on the machine that their hardware names, and sums up errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import et_sim
from et_sim.basics.errors import InputError
from et_sim.cli import main
from et_sim.validation.predictions import Prediction, machine_named, predictions
from et_sim.validation.row import SERVING_COLUMNS
from et_sim.validation.rows import Errors, read_rows, shipped
from et_sim.validation.steps import NEEDED as STEP_COLUMNS
from et_sim.validation.tables import iterations_of
from et_sim.workloads import Plan, make_training
from et_sim.workloads.microbenchmarks import make_microbenchmark

COLLECTIVES: dict[str, Any] = {
    "id": "gathered",
    "hardware": "A100-SXM4-80GB",
    "nodes": 1,
    "gpus": 4,
    "collective": "all_gather",
    "rows": [[1 << 20, 25.0, 0, 0], [1 << 27, 400.0, 0, 0]],
}
ITERATIONS: dict[str, Any] = {
    "id": "small",
    "hardware": "H100, 8 per node",
    "interconnect": "8x200 Gb/s per node",
    "defaults": {"vocab": 1024},
    "columns": [
        *("hidden", "heads", "layers", "seq_len", "gpus", "tp", "pp", "dp"),
        *("global_batch", "micro_batch", "iteration_time_s"),
    ],
    "rows": [[512, 8, 2, 256, 16, 8, 1, 2, 4, 1, 0.01]],
}


def write(folder: Path, *tables: Any) -> str:
    path = folder / "tables.json"
    path.write_text(json.dumps(list(tables)))
    return str(path)


def validated(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    assert main(["validate", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_errors_match_their_definitions() -> None:
    result = Errors.of([2.0, 0.5, 1.1, 1.0])
    assert result.rows == 4
    assert result.e == pytest.approx(100 * (math.exp((2 * math.log(2) + math.log(1.1)) / 4) - 1))
    assert result.g == pytest.approx(100 * (1.0 * 0.5 * 0.1 * 1e-6) ** 0.25)
    assert result.mape == pytest.approx(100 * 1.6 / 4)
    assert result.bias == pytest.approx(100 * (1.1**0.25 - 1))
    assert result.largest == pytest.approx(100)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-SXM4-80GB", "a100-dgx-80gb"),
        ("8xA100-SXM4-40GB (Azure)", "a100-dgx-40gb"),
        ("a100_40gb", "a100-dgx-40gb"),
        ("GCP A3 Ultra (8xH200)", "h200-dgx"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("B200-SXM", "b200-dgx"),
        ("A100 40 GB", "a100-dgx-40gb"),
        ("8 x H100 NVLink", "h100-dgx"),
        ("A100-PCIE-80GB", "a100-pcie-node"),
        ("H100 NVL", "h100-nvl-node"),
        ("L40S PCIe", "l40s-node"),
        ("L40S", "l40s-node"),
        ("H100 PCIe", "h100-pcie-node"),
        ("GH200", "gh200-quad"),
        ("RTX A1000", None),
        ("V100-SXM2", "v100-dgx-1"),
        ("P100-SXM2", None),
        ("", None),
    ],
)
def test_hardware_is_the_machine_with_the_most_words_in_its_name(text: str, name: str | None) -> None:
    assert machine_named(text) == name


def test_gpus_of_two_nodes_are_slower_than_gpus_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [{**COLLECTIVES, "id": f"on {nodes}", "nodes": nodes} for nodes in (1, 2, None)]
    rows = validated(capsys, write(tmp_path, *tables))["rows"]
    one, two, unknown = (row["predicted_us"] for row in rows[1::2])
    assert one == unknown
    assert two > 3 * one


def test_rows_are_printed_one_by_one_in_a_json_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watched(*arguments: Any) -> Iterator[Prediction]:
        for prediction in predictions(*arguments):
            seen.append(capsys.readouterr().out)
            yield prediction

    monkeypatch.setattr("et_sim.validation.predictions.predictions", watched)
    assert main(["validate", write(tmp_path, COLLECTIVES), "--json"]) == 0
    seen.append(capsys.readouterr().out)
    assert seen[0] == '{"rows": [\n'
    assert json.loads(seen[1].rstrip(",\n"))["row"] == 1
    assert [row["row"] for row in json.loads("".join(seen))["rows"]] == [1, 2]


def test_equal_rows_are_simulated_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Any] = []

    def counted(*arguments: Any, **keywords: Any) -> Any:
        calls.append(arguments)
        return et_sim.simulate(*arguments, **keywords)

    monkeypatch.setattr("et_sim.validation.predictions.simulate", counted)
    rows = read_rows(Path(write(tmp_path, {**COLLECTIVES, "rows": [[1 << 20, 25.0]] * 3})))
    assert len({prediction.predicted_us for prediction in predictions(rows)}) == 1
    assert len(calls) == 1


def test_a_defect_in_one_row_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("of a model")

    monkeypatch.setattr("et_sim.validation.predictions.simulate", broken)
    rows = validated(capsys, write(tmp_path, COLLECTIVES), status=1)["rows"]
    assert [row["how"] for row in rows] == ["a defect of et-sim: ZeroDivisionError: of a model"] * 2


def test_software_and_notes_that_are_not_used_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {**of_iterations(), "software": "Foo 2; with a new trick"}
    (row,) = table["rows"]
    assert main(["validate", write(tmp_path, {**table, "rows": [row, row]})]) == 0
    text = capsys.readouterr().out
    assert "not used: 2 rows: software 'Foo 2; with a new trick' is not known: the default" in text
    assert "not used: 2 rows: note 'with a new trick' is not understood" in text


def test_fsdp_shares_as_much_as_its_strategy_states() -> None:
    shards = {"FULL_SHARD": (3, 0), "SHARD_GRAD_OP": (2, 0), "HYBRID_SHARD": (3, 8), "NO_SHARD": (0, 0)}
    for sharding, expected in shards.items():
        ((_, job),) = iterations_of(of_iterations(sharding=sharding, tp=1, grad_accum=1))
        assert job is not None
        assert (job.plan.zero, job.plan.shard) == expected


def kernel_us(shape: str) -> float:
    build = et_sim.TraceBuilder()
    build.compute("k", layer_shape=shape, dtype="bf16")
    return et_sim.simulate(et_sim.Workload.of([build.build()]), machine="a100-dgx-80gb:1").makespan_ns / 1000


def test_kernels_take_the_times_of_the_machine_and_others_are_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(
        "table,shape,us\nours,gemm 4096 4096 4096,600\nothers,gemm 64 64 64,9\nours,gemm 1 64 64,5\n"
    )
    about = {"ours": {"gpu": "A100-SXM4-80GB", "dtype": "bfloat16"}, "others": {"gpu": "Q900"}}
    path.with_suffix(".json").write_text(json.dumps(about))
    validation = validated(capsys, str(path))
    assert [row["how"] for row in validation["rows"]] == [
        "modelled",
        "no preset for Q900 (name one with --machine)",
        "modelled",
    ]
    assert [row["row"] for row in validation["rows"]] == [1, 1, 2]
    assert validation["rows"][0]["predicted_us"] < kernel_us("gemm 4096 4096 4096")  # at the limit of power
    assert validation["rows"][2]["predicted_us"] == kernel_us("gemm 1 64 64")
    assert [(error["size"], error["rows"]) for error in validation["errors"]] == [
        ("sides >= 1024", 1),
        ("a side < 1024", 1),
        ("all", 2),
    ]
    assert main(["validate", str(path)]) == 0
    assert re.search(
        r"not predicted: 1 row, \w+ row 1: no preset for Q900 \(name one", capsys.readouterr().out
    )
    assert all(
        row["machine"] == "h100-dgx" for row in validated(capsys, str(path), "--machine", "h100-dgx")["rows"]
    )


@pytest.mark.deep
def test_bands_of_measured_kernels_hold_the_stated_share(capsys: pytest.CaptureFixture[str]) -> None:
    """Check kernels, whose errors have longer tails than the normal distribution: 70 to 90 % for 80 %."""
    errors = validated(capsys, str(Path(__file__).parent / "data/measured_kernels.csv"))["errors"]
    results = {
        (error["system"], error["kind"]): error["in_band"] for error in errors if error["size"] == "all"
    }
    assert len(results) == 3
    assert all(70 <= share <= 90 for share in results.values()), results


@pytest.mark.deep
def test_rows_have_the_band_of_their_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validation = validated(capsys, write(tmp_path, COLLECTIVES))
    row = validation["rows"][1]
    gathered = make_microbenchmark("all_gather", ranks=4, size=1 << 25)
    uncertainty = et_sim.simulate(gathered, machine="a100-dgx-80gb:4").uncertainty
    assert uncertainty is not None
    assert (row["low_us"], row["high_us"]) == (uncertainty["low_ns"] / 1000, uncertainty["high_ns"] / 1000)
    inside = [row["low_us"] <= row["measured_us"] <= row["high_us"] for row in validation["rows"]]
    of_all = [error["in_band"] for error in validation["errors"] if error["size"] == "all"]
    assert of_all == [100 * sum(inside) / 2]
    assert main(["validate", write(tmp_path, COLLECTIVES)]) == 0
    assert "in band: measured within the band of 80 %" in capsys.readouterr().out


@pytest.mark.deep
def test_collectives_and_iterations_are_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check collectives of nccl-tests, whose all-gather counts the bytes that a rank has at the end."""
    rows = validated(capsys, write(tmp_path, COLLECTIVES, ITERATIONS))["rows"]
    gathered = make_microbenchmark("all_gather", ranks=4, size=1 << 25)
    assert rows[1]["predicted_us"] == et_sim.simulate(gathered, machine="a100-dgx-80gb:4").makespan_ns / 1000
    assert rows[2]["measured_us"] == 10_000
    assert rows[2]["how"] == "simulated on h100-dgx:16,cards=8x200Gbps,network=unknown"
    assert validated(capsys, write(tmp_path, COLLECTIVES, ITERATIONS), "--table", "small")["rows"] == rows[2:]


def test_rows_without_a_time_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = {
        "id": "peaks",
        "hardware": "A100",
        "columns": ["model", "GiB"],
        "rows": [["22B", 45], ["1T", 60]],
    }
    assert main(["validate", write(tmp_path, COLLECTIVES, memory)]) == 0
    assert (
        "not predicted: 2 rows, the first, peaks row 1: table peaks has no time of an iteration"
        in capsys.readouterr().out
    )
    rows = validated(capsys, write(tmp_path, memory), status=1)["rows"]
    assert [row["measured_us"] for row in rows] == [None, None]


def test_plans_of_tables_match_their_columns() -> None:
    ((_, row),) = iterations_of(ITERATIONS)
    assert row is not None
    assert row.plan == Plan(
        tensor=8,
        data=2,
        batch=1,
        micro_batches=2,
        fused_attention=False,
        gradient_bytes=4,
        overlap_pipeline=False,
    )
    assert row.model.has_dropout
    assert make_training(row.model, row.plan).ranks == 16
    sharded = {
        "id": "fsdp",
        "hardware": "A100",
        "defaults": {
            "attention": "FlashAttention",
            "model_dims": {"tiny": {"hidden": 64, "heads": 1, "layers": 2}},
        },
        "rows": [
            {"model": "tiny", "vocab": 100, "seq_len": 128, "gpus": 8, "gpu": "h100", "micro_batch": 2}
            | {"grad_accum": 3, "sharding": "FULL_SHARD", "act_ckpt": True, "iteration_time_s": 1.0}
        ],
    }
    ((_, row),) = iterations_of(sharded)
    assert row is not None
    assert (row.hardware, row.plan.data, row.plan.zero, row.plan.micro_batches) == ("h100", 8, 3, 3)
    assert (row.plan.recompute, row.plan.fused_attention) == ("full", True)
    assert not row.model.has_dropout


@pytest.mark.deep
def test_a_host_takes_its_time_for_every_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, ITERATIONS)
    plain, slow = (
        validated(capsys, path, *how)["rows"][0]["predicted_us"] for how in ([], ["--host-time", "1ms"])
    )
    assert plain < 20_000
    assert slow > 100_000  # more than a hundred kernels
    assert main(["validate", path, "--host-time", "soon"]) == 1
    out, err = capsys.readouterr()
    assert "not predicted: 1 row, " in out
    assert "geometric mean" not in out  # there is no error to explain
    assert NONE_PREDICTED in err
    assert 'key "host-time" is "soon"' in out


BAD: list[tuple[str, str]] = [
    ("5", "the file is not a list of tables"),
    ("[", "tables.json"),
    ("[]", "has no row"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_files_that_hold_no_tables_are_refused(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tables.json"
    path.write_text(text)
    assert main(["validate", str(path)]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_csv_of_other_columns_is_refused_with_its_own_and_the_columns_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("hardware,model,seconds\nH100,llama3-8b,1\n")
    assert main(["validate", str(path)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "no kind of measurement has the columns hardware, model, seconds" in error
    assert "training steps need hardware, model, machine, gpus" in error
    assert "servings need backend, model_path, system" in error
    path.write_text("")
    assert main(["validate", str(path)]) == 2
    assert "steps.csv: the file is empty (kernels need table" in capsys.readouterr().err


TOO_LONG = "x" * 200_000  # for a value of a CSV


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"table,shape,us\nt,gemm 1 1 1,3\nt,{TOO_LONG},3\n", "line 3: is no CSV"),
        (f"{TOO_LONG},shape,us\n", "line 1: is no CSV"),
        (f"{','.join(STEP_COLUMNS)}\n{TOO_LONG}\n", "line 2: is no CSV"),
        (f"{','.join(SERVING_COLUMNS)}\n{TOO_LONG}\n", "line 2: is no CSV"),
        (f"{','.join(SERVING_COLUMNS)}\n", "has no row"),
        ("table,shape,us\n", "has no row"),
    ],
    ids=["kernels", "columns", "steps", "servings", "no serving", "no kernel"],
)
@pytest.mark.parametrize("how", [[], ["--json"]])
def test_a_csv_that_cannot_be_read_is_refused(
    how: list[str], text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    assert main(["validate", str(path), *how]) == 2
    output = capsys.readouterr()
    assert (words in output.err, output.out) == (True, "")


def of_iterations(**changed: Any) -> dict[str, Any]:
    """Return the table of iterations with other values in its row."""
    row = dict(zip(ITERATIONS["columns"], ITERATIONS["rows"][0], strict=True))
    return {**ITERATIONS, "rows": [{**row, **changed}]}


COUNTED: list[tuple[dict[str, Any], str]] = [
    ({**COLLECTIVES, "rows": [[1024, 0, 0, 0]]}, "table gathered, row 1: the time is 0"),
    ({**COLLECTIVES, "rows": 5}, "table gathered: rows is 5 (allowed: a list)"),
    ({**COLLECTIVES, "gpus": 1}, "gpus is 1 (allowed: 2 or more)"),
    ({**COLLECTIVES, "nodes": 3}, "gpus is 4, which is not a multiple of 3 nodes"),
    ({**COLLECTIVES, "rows": [[0, 5]]}, "bytes is 0 (allowed: an integer from 1 to 2^53)"),
    ({**COLLECTIVES, "rows": [[1024]]}, "the row is [1024] (allowed: a list of bytes and microseconds)"),
    ({**COLLECTIVES, "rows": [[1.5, 5]]}, "bytes is 1.5 (allowed: an integer from 1 to 2^53)"),
    ({**COLLECTIVES, "collective": 1}, "collective is 1 (allowed: a text)"),
    ({**COLLECTIVES, "quality": 1}, "quality is 1 (allowed: a text)"),
    ({**ITERATIONS, "defaults": {}}, "'vocab' is missing"),
    ({"id": "x"}, "table x: rows is null"),
    (of_iterations(gpus=64), "the plan has 16 ranks"),
    (of_iterations(global_batch=5), "is not a multiple of 2 x 1"),
    (of_iterations(heads=0), "heads is 0"),
    (of_iterations(heads=None), "'heads' is missing"),
    (of_iterations(iteration_time_s=0.0), "the time is 0.0"),
    (of_iterations(iteration_time_s=None), "iteration_time_s is null (allowed: more than 0)"),
    ({**ITERATIONS, "rows": [[512, 8]]}, "the row has 2 values, and columns names 11"),
    (of_iterations(recompute="weird"), "recompute is 'weird' (known: full, attn_only, none)"),
    (of_iterations(sharding="SOME_SHARD"), "sharding is 'SOME_SHARD' (known: FULL_SHARD, SHARD_GRAD_OP"),
    (of_iterations(hidden=None, model="llama9"), "there is no model 'llama9'"),
]


@pytest.mark.parametrize(("table", "words"), COUNTED)
def test_a_row_or_table_that_cannot_be_read_is_counted_and_others_go_on(
    table: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {**COLLECTIVES, "id": "after", "rows": [[1 << 20, 25.0]]}
    path = write(tmp_path, table, after)
    *bad, last = validated(capsys, path)["rows"]
    assert bad
    assert all(row["predicted_us"] is None for row in bad)
    assert all(words in row["how"] for row in bad)
    assert (last["table"], last["row"]) == ("after", 1)
    assert last["predicted_us"] is not None
    with pytest.raises(InputError):
        read_rows(Path(path))


NONE_PREDICTED = "et-sim: error: no row is predicted (the reason of each row is above)"
WRONG: tuple[Any, ...] = (True, 0, -1, 1.5, "x", [], [1], {}, {"a": 1}, None)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(COLLECTIVES, id="collectives"),
        pytest.param(ITERATIONS, id="iterations", marks=pytest.mark.deep),
    ],
)
def test_a_value_of_any_kind_in_any_place_never_ends_the_run(
    table: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = table["rows"][0]
    spoiled = [{**table, key: value} for key in table for value in WRONG]
    for place in range(len(first)):
        rows = ([*first[:place], value, *first[place + 1 :]] for value in WRONG)
        spoiled += [{**table, "rows": [row]} for row in rows]
    for each in spoiled:
        status = main(["validate", write(tmp_path, each), "--json"])
        printed = capsys.readouterr()
        is_predicted = any(row["predicted_us"] is not None for row in json.loads(printed.out)["rows"])
        errors = [line for line in printed.err.splitlines() if "error" in line]
        assert (status, errors) == ((0, []) if is_predicted else (1, [NONE_PREDICTED])), each


def test_all_shipped_measurements_are_read() -> None:
    assert all(read_rows(path) for path in shipped())


def test_a_row_that_cannot_be_predicted_has_a_reason_and_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("\ufefftable,shape,us\na,gemm 64 64 64,5\na,gem 1 1 1,5\n", encoding="utf-8")
    rows = validated(capsys, str(path), "--machine", "h100-dgx:8")["rows"]
    assert rows[0]["how"] == "modelled"
    assert "layer_shape is 'gem 1 1 1'" in rows[1]["how"]
    tables = write(tmp_path, {**COLLECTIVES, "gpus": 12}, {**COLLECTIVES, "collective": "sort"}, COLLECTIVES)
    rows = validated(capsys, tables)["rows"]
    assert [row["predicted_us"] is None for row in rows] == [True] * 4 + [False] * 2
    assert "12 NPUs are not a multiple" in rows[0]["how"]
    assert "no microbenchmark 'sort'" in rows[2]["how"]


@pytest.mark.parametrize("name", ["foo", "", "../devices/a100-80gb"])
def test_an_unknown_machine_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", write(tmp_path, COLLECTIVES), "--machine", name]) == 2
    assert "is not known" in capsys.readouterr().err


def test_a_folder_without_logs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    assert main(["validate", str(tmp_path)]) == 2
    assert "is a log of MLPerf Training (name the folder that holds the logs" in capsys.readouterr().err
