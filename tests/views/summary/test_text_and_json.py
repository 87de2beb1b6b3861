"""`et-sim inspect --json` has the counts of the printed view: rows, and totals of its columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import RING_4
from runs_to_show import congested, pipeline

from et_sim.basics.units import format_bytes, format_ns, parse_ranks
from et_sim.cli import main
from et_sim.views.view import VIEWS

LAYERS = "DATA 2 a -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 65536 1 b -1 7 NONE 0 3 NONE 0 5 ALLREDUCE 1024 1"
View = Callable[[str], tuple[str, Any]]


class Table:
    """Lines below a heading, in columns; columns of numbers end with their names."""

    def __init__(self, text: str, *names: str) -> None:
        lines = text.splitlines()
        self.at = next(at for at, line in enumerate(lines) if line.split()[: len(names)] == [*names])
        self.head = lines[self.at]
        below = lines[self.at + 1 :]
        end = next((at for at, line in enumerate(below) if not line.strip()), len(below))
        self.rows = [line for line in below[:end] if line.count("  ")]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column whose name is at its right end."""
        end = self.head.index(name) + len(name)
        return [row[:end].rstrip().split("  ")[-1].strip() for row in self.rows]

    def numbers(self, name: str, rows: int | None = None) -> list[int]:
        """Return the cells as whole numbers, of `rows` rows; notes without numbers may follow them."""
        assert not any(cell.isdigit() for cell in self.column(name)[rows:]) or rows is None
        return [int(cell.replace(",", "")) for cell in self.column(name)[:rows]]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a wide terminal, which shows all columns, and no compilation."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setenv("COLUMNS", "250")


def viewer(run: Path, capsys: pytest.CaptureFixture[str]) -> View:
    """Return a function that shows a view of a run in both forms, uncut."""

    def show(view: str) -> tuple[str, Any]:
        words = ["inspect", str(run), view]
        words += ["--top", "9999"] if "top" in VIEWS[view].cuts else []
        assert main(words) == 0
        text = capsys.readouterr().out
        assert main([*words, "--json"]) == 0
        assert " more line" not in text
        return text, json.loads(capsys.readouterr().out)

    return show


def times(entries: list[Any], key: str) -> list[str]:
    return [format_ns(entry[key]) for entry in entries]


@pytest.fixture(scope="module", params=[True, False], ids=["folded", "unfolded"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pipeline of eight ranks, two of them simulated if it is folded."""
    options = {"detail": "phases,links", "system": {"track-local-mem": 1}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        return pipeline(tmp_path_factory.mktemp("same") / "run", fold=request.param, **options)


def counts(entries: list[Any], key: str) -> list[int]:
    return [entry[key] for entry in entries]


def _ranks(text: str, data: Any) -> None:
    lines = [row for row in Table(text, "ranks", "finish").rows if row[0].isdigit()]
    assert [row.split()[0] for row in lines] == [entry["ranks"] for entry in data]
    assert sum(len(piece) for entry in data for piece in parse_ranks(entry["ranks"])) == 8
    for row, entry in zip(lines, data, strict=True):
        assert f" {format_ns(entry['finish_ns'])} " in row


def _totals(text: str, data: Any) -> None:
    table = Table(text, *text.split()[:2])
    assert table.numbers("count", len(data)) == counts(data, "count")
    assert table.column("total")[: len(data)] == times(data, "total_ns")


def _waits(text: str, data: Any) -> None:
    for name, first in (("ranks", "ranks"), ("groups", "group"), ("operations", "operation")):
        assert Table(text, first).column("transfer") == times(data[name], "transfer_ns")


def _bandwidth(text: str, data: Any) -> None:
    assert Table(text, "kind").numbers("count", len(data["rates"])) == counts(data["rates"], "count")


def _phases(text: str, data: Any) -> None:
    table = Table(text, "dimension", "operation")
    assert table.numbers("phases", len(data)) == counts(data, "count")
    assert table.column("longest")[: len(data)] == times(data, "longest_ns")


def _links(text: str, data: Any) -> None:
    assert Table(text, "dimension", "ranks").numbers("messages") == counts(data, "messages")


def _topology(text: str, data: Any) -> None:
    assert len(Table(text, "tier").rows) == len(data["tiers"])


def _memory(text: str, data: Any) -> None:
    table = Table(text, "ranks", "peak")
    assert table.numbers("tensors alive then") == counts(data, "tensors")
    assert table.column("peak") == [format_bytes(entry["bytes"]) for entry in data]
    assert len(Table(text, "class", "size").rows) == len(data[0]["by_class"])


def _spread(text: str, data: Any) -> None:
    assert Table(text, "operation", "cost").numbers("ranks", len(data)) == counts(data, "ranks")


def _idle(text: str, data: Any) -> None:
    rows = [row for row in Table(text, "ranks", "row").rows if not row.startswith(("█", "ranks"))]
    assert len(rows) == len(data["rows"])


def _schedule(text: str, data: Any) -> None:
    shown = [line for line in text.splitlines() if re.match(r"[0-9]+-?.* [0-9.]+%$", line)]
    assert len(shown) == len(data["rows"]) == data["stages"]


def _activity(text: str, data: Any) -> None:
    assert len(Table(text, "ranks").rows) == len(data["rows"])


def _notices(text: str, data: Any) -> None:
    for kind in ("warning", "default"):
        lines = sum(line.startswith(f"{kind}: ") for line in text.splitlines())
        assert lines == len(data[f"{kind}s"])


@pytest.mark.parametrize("fold", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_text_and_data_of_the_critical_path_count_the_same(
    fold: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, data = viewer(pipeline(tmp_path / "run", fold=fold, detail="path"), capsys)("critical-path")
    assert f" in {data['events']:,} events\n" in text
    assert len(Table(text, "cause").rows) == len(data["causes"])
    assert len(Table(text, "kind", "operation", "group").rows) == len(data["operations"])
    slack = Table(text, "kind", "operation", "nodes")
    for name in ("nodes", "critical"):
        assert slack.numbers(name) == counts(data["slack_of_operations"], name)
    assert len(Table(text, "from", "takes").rows) == len(data["hops"])


def _nothing(text: str, data: Any) -> None:
    assert text.startswith("no ")
    assert not (data and data["kernels"])


CHECKS: dict[str, Callable[[str, Any], None]] = {
    "ranks": _ranks,
    "groups": _totals,
    "ops": _totals,
    "activity": _activity,
    "waits": _waits,
    "bandwidth": _bandwidth,
    "schedule": _schedule,
    "spread": _spread,
    "idle": _idle,
    "phases": _phases,
    "topology": _topology,
    "links": _links,
    "memory": _memory,
    "notices": _notices,
    "roofline": _nothing,
    "stalls": _nothing,
}
OF_OTHER_RUNS = {"critical-path", "queues", "pauses", "flows", "layers", "samples"}
IN_ONE_FORM = {"summary", "picture"}  # the data is the file; there is none


@pytest.mark.parametrize("view", CHECKS)
def test_text_and_data_count_the_same(run: Path, view: str, capsys: pytest.CaptureFixture[str]) -> None:
    CHECKS[view](*viewer(run, capsys)(view))


def test_every_view_is_compared() -> None:
    assert CHECKS.keys() | OF_OTHER_RUNS | IN_ONE_FORM == VIEWS.keys()


def test_text_and_data_of_packets_count_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = viewer(congested(tmp_path / "run"), capsys)
    text, data = show("queues")
    ports = [line for line in text.splitlines() if line.endswith("|")]
    assert [line.split()[0] for line in ports] == [port["link"] for port in data["ports"]]
    assert len(Table(text, "link", "from", "for").rows) == len(data["incasts"])
    text, data = show("flows")
    assert f"\n{len(data):,} messages; " in text
    assert Table(text, "from", "to").column("takes") == [
        format_ns(flow["arrived_ns"] - flow["begin_ns"]) for flow in data
    ]
    text, data = show("pauses")
    counted, waiting = 0, [*data]
    while waiting:
        root = waiting.pop()
        counted, waiting = counted + 1, waiting + root["caused"]
    assert sum(" pauses of " in line for line in text.splitlines()) == counted


def test_text_and_data_of_layers_count_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.txt").write_text(LAYERS)
    (tmp_path / "system.json").write_text('{"all-reduce-implementation": ["ring"]}')
    (tmp_path / "network.yml").write_text(json.dumps(RING_4))
    machine = [f"--system={tmp_path / 'system.json'}", f"--network={tmp_path / 'network.yml'}"]
    assert main(["run", str(tmp_path / "layers.txt"), *machine, f"--out={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    text, data = viewer(tmp_path / "run", capsys)("layers")
    assert f"finished at {format_ns(data['finish_ns'])}: {format_ns(data['compute_ns'])} computing" in text
    names = [line.split()[0] for line in Table(text, "layer", "forward").rows]
    assert names == [layer["layer"] for layer in data["layers"]]
    assert Table(text, "dimension", "chunk").numbers("chunk phases") == counts(
        data["dimensions"], "chunk_phases"
    )
    assert f"rank 0 sent {format_bytes(sum(data['sent_bytes']))} " in text
