"""`et-sim check-model`: correct models pass, and models that fold wrongly are named."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.cli.check_model import Options
from et_sim.doctor import models
from et_sim.doctor.models import examine_model
from et_sim.network.registry import MODELS
from et_sim.trace.columns import NodeKind

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
PATHS = "from et_sim.network.custom import Paths"
TOYS = Path(__file__).resolve().parents[1] / "conformance" / "toys"
KEYS = "lambda source, target: source // POD != target // POD"
WAY = "way = int(source // POD != target // POD)"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Yield a function that writes the page's example with changes; its module is removed afterwards."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(name: str, *changes: tuple[str, str]) -> Path:
        match = re.search(
            r"\$ cat > pods.py <<END\n(.*?)> END\n", PAGE.read_text(encoding="utf-8"), re.DOTALL
        )
        assert match is not None
        text = re.sub("^> ?", "", match[1], flags=re.MULTILINE)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        return path

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def problems(path: Path) -> list[str]:
    return [verdict.problem for verdict in examine_model(str(path), programs=3)]


@pytest.mark.deep
def test_the_example_of_the_page_has_forty_lines_or_fewer_and_keeps_its_promise(write: Write) -> None:
    path = write("pods_right")
    assert len([line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]) <= 40
    assert problems(path) == ["", "", ""]


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("loggops", "packet")])
def test_models_of_the_package_keep_their_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    assert [verdict.problem for verdict in examine_model(name, programs=2)] == ["", "", ""]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ((KEYS, "lambda source, target: source * 0"), "0 to 5 and 5 to 4, but 1 bytes take 2,000 "),
        ((KEYS, f"{KEYS}, alike_by_distance=True"), "alike by distance, but has different numbers for 0 to "),
        ((WAY, "way = int(target == 0)"), "0 to 5 and 5 to 0, but 1 bytes take 500 ns "),
        ((WAY, f"{WAY}\n    run.network.latency_ns[0] += 1"), "but 1 bytes take"),
    ],
    ids=["one-number", "by-distance", "to-one-rank", "history"],
)
def test_a_model_that_folds_wrongly_is_found(
    write: Write, change: tuple[str, str], complaint: str, request: pytest.FixtureRequest
) -> None:
    name = f"pods_{request.node.callspec.id.replace('-', '_')}"
    assert any(complaint in problem for problem in problems(write(name, change)))


@pytest.mark.deep
def test_messages_that_meet_and_are_folded_as_if_they_did_not_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = (TOYS / "shared_medium.py").read_text(encoding="utf-8")
    honest = "def path_keys(_network: Network, *, whole: bool) -> None:\n"
    assert honest in text
    hasty = honest.replace("None", "Any") + "    return Paths(lambda source, target: source * 0)\n"
    text = text.replace(honest, hasty).replace("import numpy as np\n", f"import numpy as np\n{PATHS}\n")
    path = tmp_path / "shared_wrongly.py"
    path.write_text(text, encoding="utf-8")
    results = [verdict.problem for verdict in examine_model(str(path))]
    monkeypatch.delitem(sys.modules, "shared_wrongly")
    assert any("folded, at" in problem for problem in results)


@pytest.mark.deep
def test_a_model_that_never_folds_promises_nothing(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("pods_alone", (f"Paths({KEYS})", "None"), (" -> Paths:", " -> None:"))
    assert problems(path) == ["", "", ""]
    assert main(["check-model", str(path), "--programs", "1"]) == 0
    assert "16 NPUs: no paths to compare (it never folds) and 1 programs agree\n" in capsys.readouterr().out


@pytest.mark.deep
def test_the_command_fails_if_a_model_is_wrong(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = str(write("pods_wrong", (KEYS, "lambda source, target: source * 0")))
    assert main(["check-model", wrong]) == 1
    assert "path_keys has one number for" in capsys.readouterr().out
    assert main(["check-model", str(write("pods_well")), "--programs", "1"]) == 0


@pytest.mark.deep
def test_a_network_of_ones_own_is_tried_alone(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = tmp_path / "net.yml"
    described = {"topology": ["Ring"], "npus_count": [8], "bandwidth": ["50GB/s"], "latency": ["1us"]}
    network.write_text(json.dumps(described), encoding="utf-8")
    model = str(write("pods_own"))
    assert main(["check-model", model, "--network", str(network), "--programs", "1"]) == 0
    assert capsys.readouterr().out == "8 NPUs: 56 paths and 1 programs agree\n"
    assert main(["check-model", model, "--programs", "0"]) == 2
    assert "--programs is 0 (try one program or more)" in capsys.readouterr().err
    network.write_text(json.dumps({**described, "npus_count": [65]}), encoding="utf-8")
    assert main(["check-model", model, "--network", str(network)]) == 2
    assert "has 65 ranks, more than the limit of 64" in capsys.readouterr().err


def test_modules_that_are_no_model_are_refused_with_the_reason(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, empty, taken = tmp_path / "broken_model.py", tmp_path / "empty_model.py", tmp_path / "json.py"
    broken.write_text("import nothing_of_that_name", encoding="utf-8")
    empty.write_text("", encoding="utf-8")
    taken.write_text("", encoding="utf-8")
    for path, complaint in (
        (tmp_path / "none.py", "there is no file"),
        (broken, "broken_model.py, line 1 cannot be imported: No module named 'nothing_of_that_name'"),
        (empty, "it has no HAS_CONTENTION"),
        (taken, "there is another Python module called json"),
        (write("pods_lacking", ("def path_keys", "def keys")), "it has no path_keys"),
    ):
        assert main(["check-model", str(path)]) == 2
        assert complaint in capsys.readouterr().err


def test_an_exception_in_a_model_is_one_sentence_with_its_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("pods_dividing", (WAY, f"{WAY} // (source * 0)"))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "source * 0" in text)
    output = f"et-sim: error: {path}, line {line}: ZeroDivisionError: integer division or modulo by zero\n"
    assert main(["check-model", str(path), "--programs", "1"]) == 2
    assert capsys.readouterr().err == output
    assert main(["make", "all_reduce", "--ranks", "4", "--bytes", "8", "-o", str(tmp_path / "w")]) == 0
    machine = ["--machine", "h100-dgx:4", "--network-model", str(path), "--out", str(tmp_path / "run")]
    assert main(["run", str(tmp_path / "w"), *machine]) == 2
    assert output in capsys.readouterr().err


class Simulated:
    """Runs by rules in place of simulations: times of lone messages, and ends of ranks of programs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[tuple[int, int, int]] = []
        self.programs: list[dict[str, Any]] = []
        self.takes: Any = lambda *message: message[-1]
        self.finish: Any = lambda _: [0] * 4
        self.codes: Any = lambda *ends: ends[0] * 0
        self.differ_along_axes = False
        keys = {"path_keys": lambda *_, **__: self.codes and self}
        monkeypatch.setattr(models, "model_named", lambda _: SimpleNamespace(**keys))
        monkeypatch.setattr(models, "simulate", self.simulate)

    def simulate(self, workload: Any, *, system: dict[str, Any], fold: bool, **_: Any) -> Any:
        if len(workload.templates) == 1:
            [trace] = workload.templates
            nodes = [
                (trace.describe(row), int(trace.comm_bytes[row]), int(trace.duration_us[row]))
                for row in range(len(trace))
            ]
            run = {"nodes": nodes, "fold": fold, "late": system.get("stragglers")}
            self.programs.append(run)
            return SimpleNamespace(finish_ns=np.array(self.finish(len(self.programs))))
        found = {}
        for rank, trace in enumerate(workload.templates):
            for row in np.flatnonzero(trace.kind == NodeKind.RECV).tolist():
                message = int(trace.comm_src[row]), rank, int(trace.comm_bytes[row])
                found[int(trace.node_name(row))] = message
        self.messages += [found[at] for at in range(len(found))]
        ends = accumulate(self.takes(*found[at]) for at in range(len(found)))
        return SimpleNamespace(
            timeline=pa.table({"name": [str(at) for at in sorted(found)], "end_ns": [*ends]})
        )

    def verdict(self, ranks: int, **options: Any) -> models.Verdict:
        network: Any = {"topology": ["Ring"], "npus_count": [ranks], "bandwidth": [50.0], "latency": [500.0]}
        [verdict] = examine_model("rules", network, **options)
        return verdict


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    return Simulated(monkeypatch)


def test_lone_messages_of_some_sizes_cross_every_path_once(simulated: Simulated) -> None:
    assert simulated.verdict(5, programs=1) == models.Verdict("5", 5 * 4, 1, "")
    paths = {(source, target) for source in range(5) for target in range(5) if source != target}
    sizes = {size for _, _, size in simulated.messages}
    assert len(sizes) > 1
    expected = sorted((*path, size) for path in paths for size in sizes)
    assert sorted(simulated.messages) == expected


def test_paths_of_one_number_that_take_two_times_are_named_with_both(simulated: Simulated) -> None:
    simulated.takes = lambda *message: 70 if message[:2] == (3, 1) else 40
    problem = simulated.verdict(4).problem
    both = "and 3 to 1, but 1 bytes take 40 ns on the one way, 70 on the other"
    assert re.fullmatch(rf"path_keys has one number for \d to \d {both}", problem)
    assert simulated.programs == []
    simulated.codes = lambda source, target: (source == 3) & (target == 1)
    assert "alike by distance, but has different numbers" in simulated.verdict(4).problem
    simulated.differ_along_axes = True
    assert simulated.verdict(4, programs=2).problem == ""


def test_a_model_without_path_keys_is_tried_by_programs_alone(simulated: Simulated) -> None:
    simulated.codes = None
    assert simulated.verdict(4, programs=2) == models.Verdict("4", 0, 2, "")
    assert simulated.messages == []


def test_each_program_runs_folded_and_twice_unfolded_and_follows_from_the_seed(simulated: Simulated) -> None:
    simulated.codes = None
    for seed in (1, 1, 2):
        simulated.verdict(3, programs=20, seed=seed)
    first, again, other = (simulated.programs[at : at + 60] for at in (0, 60, 120))
    assert first == again != other
    assert [run["fold"] for run in first] == [True, False, False] * 20
    for run, *same in zip(first[::3], first[1::3], first[2::3], strict=True):
        assert all({**run, "fold": False} == each for each in same)
    late = [run["late"][0]["ranks"] for run in first if run["late"]]
    assert {*late} == {"0", "1", "2"}
    assert {len(run["nodes"]) for run in first} == {1, 2, 3, 4, 5}
    assert all(size > 0 or micros > 0 for run in first for _, size, micros in run["nodes"])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [(7, "7 ns folded, at 5 unfolded"), (9, "7 ns unfolded again, at 5 unfolded")],
)
def test_a_run_with_other_ends_is_named_with_the_first_rank_that_differs(
    simulated: Simulated, wrong: int, text: str
) -> None:
    simulated.codes = None
    simulated.finish = lambda run: [5, 5, 7, 8] if run == wrong else [5] * 4
    verdict = simulated.verdict(4, programs=9)
    assert verdict.problem.endswith(f": rank 2 ends at {text}")
    assert verdict.programs == 3


def test_networks_are_tried_up_to_the_limit_that_the_option_states(simulated: Simulated) -> None:
    simulated.codes = None
    [limit] = re.findall(r"at most (\d+) NPUs", Options.__annotations__["network"])
    assert simulated.verdict(int(limit), programs=1).programs == 1
    with pytest.raises(UsageError, match=f"has {int(limit) + 1} ranks, more than the limit of {limit}"):
        simulated.verdict(int(limit) + 1)
    with pytest.raises(UsageError, match="--programs is 0"):
        simulated.verdict(4, programs=0)
