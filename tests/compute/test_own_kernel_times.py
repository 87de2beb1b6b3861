"""A user's compute model times kernels before the system's models, and folding stays exact."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import ring, simulate, system

from et_sim import TraceBuilder, UsageError
from et_sim.cli import main

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Yield a function that writes a module, which is removed afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(
            f"import numpy as np\n\ndef times_ns(kernels):\n    return {text}\n", encoding="utf-8"
        )
        return path

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def programs(ranks: int = 4) -> list[TraceBuilder]:
    builders = [TraceBuilder() for _ in range(ranks)]
    for builder in builders:
        first = builder.compute("gemm", micros=5, num_ops=4000, tensor_bytes=10)
        second = builder.collective("all_reduce", 1 << 20, after=[first])
        builder.compute("copy", micros=7, num_ops=1, tensor_bytes=300, after=[second])
    return builders


def times(result: Any, name: str) -> set[int]:
    rows = result.timeline.select(["name", "start_ns", "end_ns"]).to_pylist()
    return {row["end_ns"] - row["start_ns"] for row in rows if row["name"] == name}


def run(model: Any, **options: Any) -> Any:
    return simulate(programs(), ring(4), system(), compute_model=model, **options)


def test_the_function_times_kernels_and_leaves_those_with_nan_to_the_system() -> None:
    result = run(lambda kernels: np.where(kernels.names == "gemm", kernels.operations / 8, np.nan))
    assert times(result, "gemm") == {500}
    assert times(result, "copy") == {7000}


def test_a_model_that_times_no_kernel_is_noticed_and_one_that_times_a_kernel_is_not() -> None:
    def warnings(model: Any, builders: list[TraceBuilder]) -> list[str]:
        result = simulate(builders, ring(4), system(), compute_model=model)
        return [notice["text"] for notice in result.manifest["warnings"] if notice["place"] == model.__name__]

    def none(kernels: Any) -> Any:
        return np.full(len(kernels), np.nan)

    def one(kernels: Any) -> Any:
        return np.where(kernels.names == "copy", 5.0, np.nan)

    without_kernels = [TraceBuilder() for _ in range(4)]
    for builder in without_kernels:
        builder.collective("all_reduce", 1 << 20)
    [text] = warnings(none, programs())
    assert text.startswith("it times no kernel of this workload")
    assert warnings(one, without_kernels) == [text]
    assert warnings(one, programs()) == []


def test_times_are_rounded_and_above_zero_stay_above_zero() -> None:
    result = run(lambda kernels: np.where(kernels.names == "gemm", 0.01, 2.6))
    assert (times(result, "gemm"), times(result, "copy")) == ({1}, {3})


def test_folded_equals_unfolded_with_a_compute_model(write: Write) -> None:
    path = str(write("own_folds", "kernels.bytes * 3 + kernels.recorded_ns"))
    folded, unfolded = run(path), run(path, fold=False)
    assert folded.makespan_ns == unfolded.makespan_ns
    assert times(folded, "gemm") == times(unfolded, "gemm") == {5030}


def test_columns_state_what_the_trace_states() -> None:
    seen: dict[str, Any] = {}

    def times_ns(kernels: Any) -> Any:
        seen.update({name: getattr(kernels, name)[:2].tolist() for name in kernels.__struct_fields__})
        return np.ones(len(kernels))

    run(times_ns)
    assert seen == {
        "names": ["gemm", "copy"],
        "operations": [4000, 1],
        "bytes": [10, 300],
        "shapes": ["", ""],
        "datatypes": ["", ""],
        "recorded_ns": [5000, 7000],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernels.operations[:1]", "returned 1 numbers for 2 kernels"),
        ("-kernels.operations", "returned -4000 for the kernel 'gemm'"),
        ("kernels.operation", "line 4: AttributeError"),
        ("kernels.bytes / 0 * np.inf", "returned inf for the kernel 'gemm'"),
        ("None", "returned nothing"),
        ("exit(0)", "line 4: SystemExit"),
    ],
)
def test_wrong_results_are_refused_with_the_kernel_or_the_line(write: Write, text: str, message: str) -> None:
    with np.errstate(divide="ignore"), pytest.raises(UsageError, match=message):
        run(str(write(f"own_wrong_{len(text)}", text)))


def test_a_model_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(UsageError, match="has no effect: this system replays recorded times"):
        simulate(programs(), ring(4), system() | {"replay-only": 1}, compute_model=lambda _: 1)


def test_a_file_without_the_function_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "own_without_function.py"
    path.write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has no function times_ns"):
        run(str(path))


def test_check_model_finds_times_that_depend_on_other_kernels(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-model", str(write("own_right", "kernels.bytes / 2"))]) == 0
    assert main(["check-model", str(write("own_ranked", "np.arange(len(kernels))"))]) == 1
    assert main(["check-model", str(write("own_mean", "kernels.bytes + kernels.bytes.mean()"))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "200 kernels take the same times again, in another order and alone"
    assert lines[1].endswith("ns in another order")
    assert lines[2].endswith("ns alone")


def test_options_for_networks_are_refused_with_a_compute_model(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-model", str(write("own_option", "1.0")), "--programs", "3"]) == 2
    assert "--programs has no effect" in capsys.readouterr().err
