"""`et-sim run` from the outside: output, files, refusals and exit statuses."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import et_sim
from et_sim.cli import main

pytestmark = pytest.mark.usefixtures("warm_engine")

DEMO = Path(et_sim.__file__).parent / "workloads" / "demo"
MACHINE = [f"--system={DEMO / 'system.json'}", f"--network={DEMO / 'network.yml'}"]
INPUTS = [f"work.{rank}.et" for rank in range(8)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with the traces `work.0.et` to `work.7.et`."""
    monkeypatch.chdir(tmp_path)
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=20)
    build.collective("all_reduce", 1 << 20, name="sum", after=[work])
    et_sim.write_workload(et_sim.Workload.of([build.build()] * 8), "work")
    return tmp_path


@pytest.fixture
def stuck(folder: Path) -> str:
    """Write traces in which rank 5 waits for a message that is never sent."""
    traces = []
    for rank in range(8):
        build = et_sim.TraceBuilder()
        build.compute("work", micros=20)
        if rank == 5:
            build.receive(3, 64, tag=7)
        traces.append(build.build())
    et_sim.write_workload(et_sim.Workload.of(traces), folder / "stuck")
    return "stuck"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_complete_run_prints_its_summary_and_writes_its_directory(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "work", *MACHINE]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("makespan     151.304 µs (151,304 ns)\n")
    assert _names(folder / "work.run") == [
        "actors.arrow",
        "groups.arrow",
        "run.json",
        "summary.json",
        "timeline.arrow",
    ]


def test_json_is_the_summary_file_byte_for_byte(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "work", *MACHINE, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (folder / "work.run" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(printed.out)["makespan_ns"] == 151_304


@pytest.mark.usefixtures("folder")
def test_the_profile_of_the_command_line_overrides_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for profile in ("reference", "corrected"):
        assert main(["run", "work", *MACHINE, "--profile", profile, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["profile"], bool(printed["corrections"])) == (profile, profile == "corrected")
        assert printed["switched"] == []


def test_the_same_inputs_give_the_same_bytes(folder: Path) -> None:
    for name in ("first", "second"):
        assert main(["run", "work", *MACHINE, "--out", name]) == 0
    assert _digests(folder / "first") == _digests(folder / "second")


def test_an_earlier_run_is_replaced_as_a_whole(folder: Path, stuck: str) -> None:
    assert main(["run", stuck, *MACHINE, "--out", "here"]) == 1
    assert main(["run", "work", *MACHINE, "--out", "here"]) == 0
    assert "stall.json" not in _names(folder / "here")
    assert [name for name in _names(folder) if name.startswith(".")] == []


def test_a_stalled_run_is_status_1_is_explained_and_written(
    folder: Path, stuck: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", stuck, *MACHINE]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "rank 5 waits for 64 B with tag 7 from rank 3" in printed.err
    assert "Traceback" not in printed.err
    assert json.loads((folder / "stuck.run" / "summary.json").read_text())["status"] == "stalled"
    assert "stall.json" in _names(folder / "stuck.run")


def test_json_of_a_stalled_run_is_the_summary_file_too(
    folder: Path, stuck: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", stuck, *MACHINE, "--json"]) == 1
    assert capsys.readouterr().out == (folder / "stuck.run" / "summary.json").read_text(encoding="utf-8")


def test_a_directory_that_is_no_run_is_never_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "precious").mkdir()
    (folder / "precious" / "thesis.tex").write_text("years of work")
    assert main(["run", "work", *MACHINE, "--out", "precious"]) == 2
    assert "nothing was overwritten" in capsys.readouterr().err
    assert _names(folder / "precious") == ["thesis.tex"]
    assert main(["run", "work", *MACHINE, "--out", "work.0.et"]) == 2
    assert "work.0.et is a file" in capsys.readouterr().err


def _damage(folder: Path, how: str) -> None:
    target = folder / "work.3.et"
    if how == "truncated":
        target.write_bytes(target.read_bytes()[:-5])
    elif how == "missing":
        target.unlink()
    elif how == "empty":
        target.write_bytes(b"")
    elif how == "foreign":
        target.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    elif how == "text":
        target.write_text('{"schemaVersion": 1}')


@pytest.mark.parametrize("how", ["truncated", "missing", "empty", "foreign", "text"])
def test_a_damaged_trace_is_one_sentence_and_leaves_nothing(
    folder: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _damage(folder, how)
    before = _names(folder)
    assert main(["run", "work", *MACHINE]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("et-sim: error: ")
    assert printed.err.count("\n") == 1
    assert "work.3.et" in printed.err
    assert _names(folder) == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([f"--network={DEMO / 'network.yml'}", "--system=nope.json"], "nope.json"),
        ([f"--system={DEMO / 'system.json'}", "--network=nope.yml"], "nope.yml"),
        ([*MACHINE, "--memory=nope.json"], "nope.json"),
        ([*MACHINE, "--groups=nope.json"], "nope.json"),
        ([f"--system={DEMO / 'network.yml'}", f"--network={DEMO / 'system.json'}"], "system.json"),
        ([*MACHINE, "--network-model=analitical"], "did you mean 'analytical'"),
    ],
)
def test_an_unusable_machine_is_one_sentence_and_leaves_nothing(
    folder: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "work", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("et-sim: error: ")
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert _names(folder) == INPUTS


def test_a_place_that_cannot_be_written_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").write_text("")
    assert main(["run", "work", *MACHINE, "--out", "file/run"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("et-sim: error: ")
    assert printed.err.count("\n") == 1


def test_forgetting_the_machine_is_a_usage_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(folder / "work")]) == 2
    assert "--system" in capsys.readouterr().err


def test_warnings_go_to_stderr_and_into_the_manifest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = json.loads((DEMO / "system.json").read_text()) | {"boost-mode": 1}
    (folder / "system.json").write_text(json.dumps(system))
    assert main(["run", "work", "--system=system.json", MACHINE[1], "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("et-sim: warning: ")
    assert "system.json" in printed.err
    manifest = json.loads((folder / "work.run" / "run.json").read_text())
    assert [warning["key"] for warning in manifest["warnings"]] == ["boost-mode"]
    assert json.loads(printed.out)["warnings"] == manifest["warnings"]


def test_the_word_cycles_is_never_printed(
    folder: Path, stuck: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["run", "work", *MACHINE], ["run", stuck, *MACHINE], ["inspect", "work.run"]):
        main(command)
    printed = capsys.readouterr()
    assert "cycles" not in (printed.out + printed.err).lower()
    assert _names(folder)


def test_a_directory_with_a_foreign_manifest_is_not_an_earlier_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "run.json").write_text('{"my": 1}')
    (folder / "project" / "code.py").write_text("precious")
    assert main(["run", "work", *MACHINE, "--out", "project"]) == 2
    assert "does not hold an earlier run" in capsys.readouterr().err
    assert (folder / "project" / "code.py").read_text() == "precious"


def test_foreign_files_in_a_run_are_not_deleted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "work", *MACHINE]) == 0
    (folder / "work.run" / "notes.txt").write_text("precious")
    assert main(["run", "work", *MACHINE]) == 2
    assert "'notes.txt', which et-sim did not write" in capsys.readouterr().err
    assert (folder / "work.run" / "notes.txt").read_text() == "precious"


def test_behind_a_link_the_directory_is_replaced_and_the_link_stays(folder: Path) -> None:
    assert main(["run", "work", *MACHINE, "--out", "real"]) == 0
    (folder / "link").symlink_to("real")
    assert main(["run", "work", *MACHINE, "--out", "link"]) == 0
    assert (folder / "link").is_symlink()
    assert not [name for name in _names(folder) if name.startswith(".")]


def test_the_current_directory_is_refused_before_the_simulation(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "empty")
    assert main(["run", str(folder / "work"), *MACHINE, "--out", "."]) == 2
    assert "it is the current directory" in capsys.readouterr().err


def test_the_bytes_do_not_depend_on_where_the_inputs_lie(folder: Path) -> None:
    assert main(["run", "work", *MACHINE, "--out", "relative"]) == 0
    assert main(["run", str(folder / "work"), *MACHINE, "--out", "absolute"]) == 0
    assert _digests(folder / "relative") == _digests(folder / "absolute")


@pytest.mark.parametrize("key", ["preferred-dataset-splits", "num-queues-per-dim"])
def test_a_machine_that_does_not_fit_into_memory_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    description = json.loads((DEMO / "system.json").read_text())
    huge = {**description, "profile": "reference", key: 10**12}  # corrected: no more chunks than bytes
    (folder / "huge.json").write_text(json.dumps(huge))
    assert main(["run", "work", "--system", "huge.json", MACHINE[1]]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


@pytest.mark.exhaustive
def test_a_damaged_store_of_machine_code_is_rebuilt(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "ET_SIM_CACHE_DIR": str(tmp_path / "cache")}
    script = "import sys; from et_sim.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "run", "work", *MACHINE]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    for stored in (tmp_path / "cache").rglob("*.code"):
        stored.write_bytes(stored.read_bytes()[:40])
    again = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    assert "Traceback" not in again.stderr
