"""`et-sim check`, through the command line's own parser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from machines import ring, system

from et_sim.cli import main

SYSTEM = system(**{"preferred-dataset-splits": 4, "all-to-all-implementation": ["direct"]})


def write(path: Path, content: object) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def network(folder: Path, npus: int = 4) -> str:
    """Write a ring of NPUs as JSON, which is YAML, and return its path."""
    return write(folder / f"network{npus}.yml", ring(npus))


def make(prefix: Path, kind: str = "all_reduce", size: str = "1MiB") -> str:
    assert main(["make", kind, "--ranks", "4", "--bytes", size, "-o", str(prefix)]) == 0
    return str(prefix)


@pytest.fixture
def sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    prefix = make(tmp_path / "sound")
    capsys.readouterr()
    return prefix


@pytest.fixture
def broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    prefix = make(tmp_path / "broken")
    shutil.copy(make(tmp_path / "other", "all_gather") + ".2.et", prefix + ".2.et")
    capsys.readouterr()
    return prefix


def test_a_sound_workload_has_no_problems(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", sound]) == 0
    assert capsys.readouterr().out == "no problems found: 4 ranks, 4 nodes, 1 distinct trace\n"


def test_errors_are_printed_with_their_remedy_and_status_2(
    broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", broken]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 error:"
    assert lines[1].startswith("  collectives of the group of all ranks differ: the 1st is on ranks 0-1,3")
    assert lines[2] == "    -> give all members the same collectives in the same order"
    assert lines[3] == "looked at 4 ranks, 4 nodes, 2 distinct traces"


def test_json_holds_all_of_it(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["errors"], document["warnings"], document["ranks"], document["nodes"]) == (1, 0, 4, 4)
    problem = document["problems"][0]
    assert set(problem) == {"severity", "kind", "ranks", "text", "remedy", "like"}
    assert (problem["severity"], problem["kind"], problem["ranks"]) == ("error", "collective-type", "2")


def test_warnings_alone_are_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", make(tmp_path / "w", size="0")]) == 0
    assert "1 warning:\n  ranks 0-3 (" in capsys.readouterr().out


def test_a_whole_machine_is_checked_with_the_workload(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = write(tmp_path / "system.json", SYSTEM)
    assert main(["check", sound, "--system", system, "--network", network(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("no problems found")


def test_refusals_of_the_plan_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without_gather = {key: value for key, value in SYSTEM.items() if key != "all-gather-implementation"}
    system = write(tmp_path / "system.json", without_gather)
    workload = make(tmp_path / "g", "all_gather")
    assert main(["check", workload, "--system", system, "--network", network(tmp_path)]) == 2
    assert "key 'all-gather-implementation' is not given" in capsys.readouterr().out


def test_an_unsound_system_is_an_error_besides_errors_of_the_workload(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = write(tmp_path / "system.json", {**SYSTEM, "endpoint-dely": 3})
    for machine in (["--system", system], ["--system", system, "--network", network(tmp_path)]):
        assert main(["check", broken, *machine]) == 2
        out = capsys.readouterr().out
        assert out.startswith("2 errors:\n")
        assert "endpoint-dely" in out
        assert "collectives of the group of all ranks differ" in out


def test_too_few_traces_for_the_network_is_one_sentence(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", sound, "--network", network(tmp_path, 8)]) == 2
    assert "sound.4.et is missing" in capsys.readouterr().err


def test_more_traces_than_npus_are_refused(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", sound, "--network", network(tmp_path, 2)]) == 2
    assert "there are traces up to rank 3 (sound.3.et), but the machine has 2 NPUs" in capsys.readouterr().err


def test_an_unreadable_trace_is_one_sentence_on_stderr(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{sound}.1.et").write_bytes(b"\xff\xff\xff")
    system = write(tmp_path / "system.json", {**SYSTEM, "endpoint-delay": -3})
    assert main(["check", sound, "--system", system, "--network", network(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "sound.1.et" in captured.err
    assert "moreover" in captured.err
    assert "endpoint-delay" in captured.err


def test_groups_alone_are_read_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from et_sim.trace import TraceBuilder, Workload, write_workload

    build = TraceBuilder()
    build.collective("all_reduce", 8, "1")
    idle = TraceBuilder()
    idle.compute(micros=1)
    write_workload(Workload.of([build.build(), build.build(), idle.build()]), tmp_path / "g")
    groups = write(tmp_path / "groups.json", {"1": [0, 2]})
    assert main(["check", str(tmp_path / "g")]) == 0
    assert main(["check", str(tmp_path / "g"), "--groups", "empty"]) == 0
    assert "no groups are given" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "g"), "--groups", groups]) == 2
    out = capsys.readouterr().out
    assert "no collective in group 1" in out
    assert "whose members are ranks 0,2" in out


def test_an_unsound_memory_file_is_an_error(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = write(tmp_path / "memory.json", {"memory-type": "NOTHING"})
    assert main(["check", sound, "--memory", memory]) == 2
    assert "memory-type" in capsys.readouterr().out


def test_a_network_model_that_a_run_would_refuse_is_refused(
    sound: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", sound, "--network-model", "link"]) == 0
    capsys.readouterr()
    assert main(["check", sound, "--network-model", "lnk"]) == 2
    assert "network model 'lnk' is not known (did you mean 'link'?)" in capsys.readouterr().err
