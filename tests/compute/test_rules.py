"""Rules: the first one that a kernel matches times it; other kernels are timed as in the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from msgspec import Struct
from msgspec.structs import replace
from test_compute_model import NETWORK, RANKS
from test_compute_model import SYSTEM as COMMON
from test_device import DEVICE
from test_systolic_model import ARRAY

from et_sim import Result, TraceBuilder, Workload, simulate
from et_sim.basics.errors import EtSimError
from et_sim.compute import Durations, Treatment, Utilisation
from et_sim.documents.kinds import number
from et_sim.machine import compute_rules
from et_sim.trace import Trace, shapes


def program() -> Trace:
    build = TraceBuilder()
    build.compute("qkv.gemm", layer_shape=shapes.gemm(64, 64, 64), dtype="bf16", micros=3)
    build.compute("attention", layer_shape=shapes.attention(1, 1, 64, 64, 64), dtype="fp32", micros=3)
    build.compute("copy", num_ops=0, tensor_bytes=10**6, attributes={"copy": 1})
    build.compute("loss", num_ops=10**6, tensor_bytes=10**6)
    build.collective("all_reduce", 4096)
    return build.build()


def simulated(rules: Any, traces: list[Trace] | None = None, **options: Any) -> Result:
    workload = Workload.of(traces or [program()] * RANKS)
    system = {**COMMON, "roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 100, "compute": rules}
    return simulate(workload, system=system, network=NETWORK, **options)


def timed_by(result: Result, actor: int = 0) -> list[str | None]:
    results = [row for row in result.timeline.to_pylist() if row["actor"] == actor]
    return [row["timed_by"] for row in results]


class Sized(Struct, frozen=True):
    """A model that needs only this module and one line in the registry."""

    timer: ClassVar[str] = f"{__name__}:SizedKernels"
    scope: ClassVar[tuple[str, str]] = "kernels as large as what they move", "arithmetic"
    rate: float = number("Bytes per nanosecond.", required=True)

    @property
    def figures(self) -> tuple[str, ...]:
        return ("rate of sizes",)

    def scaled(self, name: str, multiple: float) -> tuple[Sized, float] | None:
        return (replace(self, rate=self.rate * multiple), multiple) if name in self.figures else None


class SizedKernels(NamedTuple):
    settings: Sized
    label: str
    place: str

    def lacking(self, trace: Trace, _: int) -> Any:
        return {"a size": ~trace.has("tensor_size")}

    def durations(self, trace: Trace, rows: Any, _: int = 0) -> Durations:
        ns = (trace.tensor_bytes[rows] / self.settings.rate).astype(np.int64)
        used = Utilisation.unknown(self.label, "", len(rows))
        return Durations(ns, np.full(len(rows), Treatment.MODELLED, np.uint8), utilisation=used)


def test_a_new_model_is_one_module_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_rules, "MODELS", {**compute_rules.MODELS, "sized": f"{__name__}:Sized"})
    result = simulated([{"model": "sized", "rate": 500, "where": {"attribute": "tensor_size"}}])
    assert timed_by(result) == ["replay", "replay", "sized", "sized", None]
    copy = next(row for row in result.timeline.to_pylist() if row["name"] == "copy")
    assert copy["end_ns"] - copy["start_ns"] == 2000
    assert "kernels as large as what they move" in result.summary()["scope"]["includes"]
    with pytest.raises(EtSimError, match='"rate"'):
        simulated([{"model": "sized"}])


@pytest.mark.parametrize(
    ("where", "those"),
    [
        ({"name": "*gemm"}, [0]),
        ({"name-regex": "(qkv|lo).*"}, [0, 3]),
        ({"operation": "gemm, attention"}, [0, 1]),
        ({"dtype": "float32"}, [1]),
        ({"kind": "copy"}, [2]),
        ({"kind": "kernel"}, [0, 1, 3]),
        ({"attribute": "num_ops"}, [2, 3]),
        ({"attribute": "num_ops", "value": 1000000}, [3]),
        ({"attribute": "dtype", "value": "bf16"}, [0]),
        ({"ranks": "0-3"}, [0, 1, 2, 3]),
        ({"ranks": "0-3", "operation": "gemm"}, [0]),
    ],
)
def test_a_rule_applies_to_kernels_that_meet_all_its_conditions(
    where: dict[str, Any], those: list[int]
) -> None:
    every = [{**DEVICE, "label": "here", "where": where}, {**DEVICE, "where": {"operation": "attention"}}]
    result = timed_by(simulated(every))
    assert [at for at, word in enumerate(result) if word == "here"] == those
    assert set(result[:4]) <= {"here", "roofline", "replay"}


def test_the_first_of_several_models_that_a_kernel_matches_times_it() -> None:
    rules = [
        {**ARRAY, "where": {"operation": "gemm"}},
        {**DEVICE, "label": "device", "where": {"operation": "gemm,attention"}},
    ]
    assert timed_by(simulated(rules)) == ["systolic", "device", "roofline", "roofline", None]


def test_ranks_of_different_rules_take_different_times_folded_or_not() -> None:
    slow = {**DEVICE, "peaks": {"bf16": 1, "fp32": 1}, "label": "slow", "where": {"ranks": "0-6/2"}}
    rules = [slow, {**DEVICE, "where": {"operation": "gemm,attention"}}]
    folded, single = simulated(rules), simulated(rules, fold=False)
    assert folded.finish_ns.tolist() == single.finish_ns.tolist()
    assert folded.summary()["folded"]["actors"] < RANKS
    assert folded.summary()["coverage"]["timed_by"] == single.summary()["coverage"]["timed_by"]


@pytest.mark.deep
def test_ranks_of_different_models_are_not_folded_even_with_equal_times() -> None:
    rules = [
        {**DEVICE, "label": label, "where": {"ranks": ranks}} for label, ranks in (("a", "0-3"), ("b", "4-7"))
    ]
    coverage = simulated(rules).summary()["coverage"]["timed_by"]
    assert coverage == {"a": 4 * 4, "b": 4 * 4}


def test_a_rule_that_no_kernel_met_is_warned_of() -> None:
    rules = [{**DEVICE, "where": {"name": "*"}}, {**DEVICE, "where": {"operation": "gemm"}}]
    warnings = simulated(rules).summary()["warnings"]
    assert [(warning["place"], warning["key"]) for warning in warnings] == [
        ('<system>: "compute" index 1', "where")
    ]
    assert "no kernel is timed by this rule" in warnings[0]["text"]


BAD: list[tuple[Any, str]] = [
    ({**DEVICE}, 'keys "compute" and "roofline-enabled" both time kernels'),
    ({**DEVICE, "where": {}}, '"where" is empty'),
    ({**DEVICE, "where": {"opertion": "gemm"}}, "did you mean 'operation'?"),
    ({**DEVICE, "where": {"operation": "gem"}}, "did you mean 'gemm'?"),
    ([{**DEVICE, "where": {"ranks": "0-999"}}], 'key "ranks" names rank 999, and the network has'),
    ({**DEVICE, "where": {"attribute": "num_opps"}}, "did you mean 'num_ops'?"),
    ({**DEVICE, "where": {"attribute": "num_ops", "value": "x"}}, "give a number"),
    ({**DEVICE, "where": {"value": 3}}, 'key "value" has no effect without "attribute"'),
    ({**DEVICE, "where": {"name-regex": "("}}, 'key "name-regex" is "("'),
    ({**DEVICE, "where": {"name-regex": "(?=a)b"}}, "give a regular expression of RE2, without lookahead"),
    ({**DEVICE, "where": {"name": "*", "name-regex": "a"}}, 'keys "name" and "name-regex" are both given'),
    ({**DEVICE, "where": {"dtype": "bf61"}}, 'key "dtype" is "bf61" (did you mean \'bf16\'?'),
    ({**DEVICE, "where": {"ranks": "x"}}, 'key "ranks"'),
    ([], 'key "compute" is []'),
    ([3], 'key "compute" is [3]'),
    ({"model": "systolic", "array-height": 0, "where": {"dtype": "fp8"}}, 'key "array-height" is 0'),
]


@pytest.mark.parametrize(("rules", "sentence"), BAD)
def test_invalid_rules_are_refused_in_one_sentence(rules: Any, sentence: str) -> None:
    with pytest.raises(EtSimError) as error:
        simulated(rules)
    assert sentence in str(error.value)
    assert str(error.value).startswith("<system>")


def table(path: Path, text: str, **more: Any) -> list[dict[str, Any]]:
    path.write_text(text)
    return [{"model": "table", "file": str(path), "where": {"operation": "gemm"}, **more}]


def first_ns(result: Result) -> int:
    row = result.timeline.to_pylist()[0]
    return int(row["end_ns"] - row["start_ns"])


OPERATIONS = 2 * 64**3


def test_a_table_is_exact_or_between_two_sizes(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    exact = table(path, "shape,dtype,us\ngemm 64 64 64,bf16,12.5\n")
    result = simulated(exact)
    assert first_ns(result) == 12500
    assert result.timeline.to_pylist()[0]["bound"] == "measured"
    between = f"operation,size,ns\ngemm,{OPERATIONS // 4},100\ngemm,{OPERATIONS * 4},1600\n"
    assert first_ns(simulated(table(path, between))) in (399, 400)
    assert {"times.csv"} <= {file["file"] for file in result.manifest["inputs"]}


def test_a_product_with_full_sums_is_as_long_as_the_plain_one_unless_a_table_has_both(tmp_path: Path) -> None:
    plain, both = "shape,us\ngemm 64 64 64,2\n", "shape,us\ngemm 64 64 64,2\ngemm 64 64 64 full-sums,3\n"
    build = TraceBuilder()
    build.compute("gradients", layer_shape=shapes.gemm(64, 64, 64, kernel="full-sums"), dtype="bf16")
    trace = build.build()
    for text, ns in ((plain, 2000), (both, 3000)):
        assert first_ns(simulated(table(tmp_path / f"{ns}.csv", text), [trace] * RANKS)) == ns


def test_the_timeline_marks_measured_times(tmp_path: Path) -> None:
    text = f"operation,size,us\ngemm,{OPERATIONS // 4},1\ngemm,{OPERATIONS * 4},16\n"
    result = simulated(table(tmp_path / "a.csv", text))
    assert result.timeline.to_pylist()[0]["bound"] == "interpolated"
    assert "table (interpolated)" in result.summary()["coverage"]["timed_by"]
    outside = f"operation,size,us\ngemm,{OPERATIONS // 4},1\ngemm,{OPERATIONS // 2},2\n"
    result = simulated(table(tmp_path / "b.csv", outside, outside="extrapolate"))
    assert first_ns(result) == 4000
    assert "table (outside what was measured)" in result.summary()["coverage"]["timed_by"]


@pytest.mark.parametrize(
    "text",
    ["shape,us\ngemm 64 64 65,3\n", f"size,us\n1,1\n{OPERATIONS - 1},2\n", "shape,us\nsoftmax 8 8,3\n"],
)
def test_kernels_that_a_table_has_not_are_left_to_the_rules_behind(tmp_path: Path, text: str) -> None:
    rules = table(tmp_path / "times.csv", text, outside="leave")
    result = simulated(rules)
    assert set(result.summary()["coverage"]["timed_by"]) == {"roofline"}
    inside = table(tmp_path / "inside.csv", "shape,us\ngemm 64 64 64,3\n", outside="leave")
    assert first_ns(simulated(inside)) == 3000


@pytest.mark.parametrize("microseconds", [0.7, 12.1, 210.5])
def test_a_measured_size_takes_the_measured_time(tmp_path: Path, microseconds: float) -> None:
    text = f"size,us\n10,3\n{OPERATIONS},{microseconds}\n{OPERATIONS * 2},999\n"
    assert first_ns(simulated(table(tmp_path / "times.csv", text))) == round(microseconds * 1000)


@pytest.mark.deep
def test_an_arrow_table_gives_the_same_times(tmp_path: Path) -> None:
    path = tmp_path / "times.arrow"
    rows = pa.table({"operation": ["gemm"] * 2, "size": [1, 10**9], "ns": [700, 700]})
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows)
    rules = [{"model": "table", "file": str(path), "where": {"operation": "gemm"}}]
    assert first_ns(simulated(rules)) == 700


def test_sizes_outside_a_table_are_refused_or_follow_the_rule(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    small = "size,ns\n1,10\n" + f"{OPERATIONS // 2},100\n"
    with pytest.raises(EtSimError, match=r'has the size 524,288, and the table .* "outside": "extrapolate"'):
        simulated(table(path, small))
    assert first_ns(simulated(table(path, small, outside="extrapolate"))) == 200
    large = f"size,ns\n{OPERATIONS * 2},30\n{OPERATIONS * 4},100\n"
    assert first_ns(simulated(table(path, large, outside="extrapolate"))) == 30


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("size,ns\n10,5\n", "the table has only one size"),
        ("size,ns\n10,5\n10,6\n", "line 3: size 10 is listed twice"),
        ("size,ns\n10,0\n20,6\n", "line 2: column 'ns' is '0'"),
        ("size,nss\n10,1\n", "column 'nss' is not known (did you mean 'ns'?"),
        ("size\n10\n", "needs a column 'ns' or 'us'"),
        ("size,ns\n10\n", "line 2: the line has 1 cells, the header 2"),
        ("operation,size,ns\ngem,1,1\ngem,2,2\n", "did you mean 'gemm'?"),
        ("dtype,size,ns\nbf61,1,1\n", "line 2: dtype 'bf61' is not known (did you mean 'bf16'?"),
        ("operation,size,ns\nattention,1,1\nattention,2,2\n", "has no sizes of gemm bf16"),
        (
            "shape,ns\ngemm 64 64,1\n",
            "layer_shape 'gemm 64 64' has 2 numbers (gemm has 3: gemm M N K [KERNEL])",
        ),
        ("operation,shape,ns\nconv,gemm 1 1 1,1\n", "line 2: operation 'conv' is not that of 'gemm 1 1 1'"),
        ("", "the table is empty"),
    ],
)
def test_incomplete_tables_are_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(EtSimError) as error:
        simulated(table(tmp_path / "times.csv", text))
    assert sentence in str(error.value)
    assert "times.csv" in str(error.value)
