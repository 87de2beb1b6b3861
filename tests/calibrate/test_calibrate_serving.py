"""Times of an engine's host are fitted to a part of measured servings, and judged on the others."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from et_sim.calibrate.servings import Fit, Servings, description, names_of, part_of
from et_sim.cli import main
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.replicas import MachineTimes
from et_sim.validation.serving_rows import ServedRow, read_servings
from et_sim.validation.servings import latencies_of, served

LAYER_NS, BEFORE_NS = 41_000.0, 7e6
COLUMNS = (
    *("backend", "model_path", "system", "mode", "isl", "osl", "concurrency", "tp_size", "moe_tp_size"),
    *("moe_ep_size", "attention_dp_size", "ttft_ms", "tpot_ms", "campaign"),
)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def rows_of(count: int) -> list[dict[str, Any]]:
    return [
        dict.fromkeys(COLUMNS, 1)
        | {"backend": "vllm", "model_path": "meta-llama/Llama-3.1-8B", "system": "h100_sxm", "mode": "agg"}
        | {"isl": 40 + 30 * number, "osl": 5 + number, "campaign": "B"}
        for number in range(count)
    ]


def measured(path: Path, count: int) -> Path:
    """Write rows that an engine with other times of its host would have."""
    rows, engine = rows_of(count), read_engine("vllm")
    engine = replace(engine, host=replace(engine.host, layer_ns=LAYER_NS, before_ns=BEFORE_NS))
    shared = MachineTimes()
    for of, row in zip(rows, read_servings(write(path, rows)), strict=True):
        assert row.case is not None
        summary = served(row.case, engine, shared=shared).summary()
        assert summary["tpot_ns"] is not None
        of |= {"ttft_ms": summary["ttft_ns"]["mean"] / 1e6, "tpot_ms": summary["tpot_ns"]["mean"] / 1e6}
    return write(path, rows)


def test_times_of_a_known_host_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, file = measured(tmp_path / "rows.csv", 12), tmp_path / "mine.json"
    assert main(["calibrate", "serving", str(rows), "--part", "1/2", "-o", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["host_ns"]["layer"] == pytest.approx(LAYER_NS, rel=0.001)
    assert found["host_ns"]["before"] == pytest.approx(BEFORE_NS, rel=0.001)
    assert {(each["part"], each["latency"], each["rows"]) for each in found["errors"]} == {
        (part, latency, 6) for part in ("fitted", "left out") for latency in ("tpot", "ttft")
    }
    assert all(each["mape"] < 0.1 < each["mape_before"] for each in found["errors"])

    engine = read_engine(str(file))
    assert engine.host.layer_ns == found["host_ns"]["layer"]
    assert engine.host.eager_layer_ns == read_engine("vllm").host.eager_layer_ns
    assert engine.errors is not None
    assert engine.errors.tpot == pytest.approx((1, 1), abs=0.001)
    row = read_servings(rows)[1]
    assert row.case is not None
    assert row.tpot_ms == pytest.approx(latencies_of(replace(row.case, engine=str(file))).tpot_ms, rel=1e-3)


@pytest.mark.parametrize(
    ("count", "words", "cause"),
    [
        (8, (), "there are 4 rows of 8 for 2 fitted times, and 6 are needed"),
        (8, ("--figures", "layer", "--part", "isl=40"), "there is 1 row of 8 for 1 fitted time, and 3"),
        (6, ("--part", "mode=agg"), "there are 0 rows of 6 left to judge, and 3 are needed"),
        (8, ("--part", "half"), "--part is 'half' (give 1/2"),
        (1, (), "--part is '1/2', and the file has 1 row (give more rows)"),
        (8, ("--part", "colour=red"), "no column 'colour'"),
        (6, ("--figures", "expert-layer"), "no fitted row depends on expert-layer (leave it out"),
        (8, ("--figures", "token-factor"), "there is no time 'token-factor'"),
        (8, ("--figures", "layer,layer"), "names 2 times"),
        (8, ("--engine", "sglang"), "no row is of sglang"),
    ],
)
def test_fits_that_say_nothing_are_refused(
    count: int, words: tuple[str, ...], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write(tmp_path / "rows.csv", rows_of(count))
    part = () if "--part" in words else ("--part", "1/2")
    assert main(["calibrate", "serving", str(rows), *part, *words]) == 2
    assert cause in capsys.readouterr().err


def test_a_fit_is_refused_if_longer_times_fill_the_cache_of_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_ns = read_engine("vllm").host.layer_ns

    def ratio(_: Servings, row: ServedRow, engine: Engine) -> dict[str, float] | str:
        is_longer = engine.host.layer_ns > layer_ns
        return "the cache is full" if row.number == 3 and is_longer else {"tpot": 0.9}

    monkeypatch.setattr(Servings, "ratio", ratio)
    rows = write(tmp_path / "rows.csv", rows_of(12))
    assert main(["calibrate", "serving", str(rows), "--part", "1/2", "--figures", "layer"]) == 2
    assert "with longer times of the host, the cache of a fitted row is full" in capsys.readouterr().err


def test_a_part_is_every_second_row_or_rows_with_a_value(tmp_path: Path) -> None:
    rows = rows_of(5)
    servings = read_servings(write(tmp_path / "rows.csv", rows))
    columns = [{name: str(value) for name, value in row.items()} for row in rows]
    assert part_of(servings, columns, "1/2") == {1, 3, 5}
    assert part_of(servings, columns, "isl=70,100") == {2, 3}
    assert names_of(["pass", "before"]) == ("pass", "before")


def test_a_band_has_measured_times_as_multiples_of_predicted_ones() -> None:
    ratios = {"ttft": [0.5] * 3, "tpot": [1.25] * 2}  # predicted by measured; two rows are too few
    after = {"fitted": {"tpot": [1.0]}, "left out": ratios}
    found = description(Fit(read_engine("vllm"), {}, {}, after, {}), "vllm", "1/2", Path("rows.csv"))
    assert found["errors"] == {"ttft": [2.0, 2.0]}
