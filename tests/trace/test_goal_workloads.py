"""A GOAL text is a workload by itself, equal to the traces that are made of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from goal_texts import dissemination, incast, linear_all_to_all, rank_texts

import et_sim
from converters.cli import main as convert
from et_sim.basics.errors import TraceError
from et_sim.cli import main
from et_sim.trace import encode_trace, read_workload
from et_sim.trace.goal import file as goal_file


@pytest.mark.parametrize("name", ["a.goal", "a.goal.gz", "schedule"])
def test_ranks_are_those_of_the_traces_made_of_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "// incast\n" + incast(4, 64)
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert convert(["goal", str(file), "-o", str(tmp_path / "traces")]) == 0
    workload, traces = read_workload(file, 4), read_workload(tmp_path / "traces")
    for rank in range(4):
        assert encode_trace(workload.trace(rank)) == encode_trace(traces.trace(rank))
    assert [path for path, _ in workload.inputs] == [str(file)]
    capsys.readouterr()


def test_a_run_of_it_is_the_run_of_its_traces(tmp_path: Path) -> None:
    file = tmp_path / "a.goal"
    file.write_text(dissemination(8, 100))
    assert convert(["goal", str(file), "-o", str(tmp_path / "traces")]) == 0
    network = {"loggops": {"npus": 8, "L": 2500, "o": 1500, "g": 1000, "G": 6, "S": 65535}}
    runs = [
        et_sim.simulate(given, system={"profile": "corrected"}, network=network, model="loggops")
        for given in (file, tmp_path / "traces")
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()
    assert runs[0].timeline.equals(runs[1].timeline)


@pytest.mark.parametrize(
    ("text", "are_shared"),
    [
        (dissemination(8, 100), True),
        (linear_all_to_all(5, 64), True),
        (incast(4, 64), False),
        (dissemination(8, 100).replace("s1 requires s0\n", "", 1), False),
        (dissemination(8, 100).replace("rank 0 {\n", "rank 0 {\ncalc 5\n"), False),
        (
            dissemination(8, 100).replace("rank 0 {\n", "rank 0 {\ncalc 5\n").replace("calc 5", "calc 6"),
            False,
        ),
    ],
    ids=["dissemination", "all-to-all", "incast", "dependency", "calculation", "duration"],
)
def test_ranks_whose_peers_are_at_equal_distances_share_a_trace(
    text: str, are_shared: bool, tmp_path: Path
) -> None:
    file = tmp_path / "a.goal"
    file.write_text(text)
    workload = read_workload(file)
    ranks = range(workload.ranks)
    assert workload.are_relative.tolist() == ([True] if are_shared else [False] * workload.ranks)
    sources = {str(file)} if are_shared else {f"{file}, rank {rank}" for rank in ranks}
    assert {workload.trace(rank).source for rank in ranks} == sources


@pytest.mark.parametrize("are_shuffled", [False, True])
def test_ranks_in_portions_share_traces_of_several_programs(
    are_shuffled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [
        [f"calc {7 if rank < 6 else 9}", f"send 8b to {(rank + 1) % 12}", f"recv 8b from {(rank - 1) % 12}"]
        for rank in range(12)
    ]
    head, *ranks = rank_texts(12, bodies).replace("}\n\n", "}\n").split("rank ")
    parts = ["".join(f"rank {rank}" for rank in part) for part in (ranks[:6], ranks[6:])]
    longer = max(map(len, parts))
    parts = [part.replace("{\n", "{\n" + " " * (longer - len(part)) + "\n", 1) for part in parts]
    monkeypatch.setattr(goal_file, "_BYTES_AT_ONCE", longer + len(head) + 1)
    file = tmp_path / "a.goal"
    file.write_text(head + "".join(parts[::-1] if are_shuffled else parts))
    workload = read_workload(file)
    assert workload.are_relative.tolist() == [True, True]
    assert workload.template_of_rank.tolist() == [0] * 6 + [1] * 6
    assert [workload.trace(rank).duration_ns.max() for rank in (0, 11)] == [7, 9]


@pytest.mark.parametrize("in_last_portion", [1, 2])
def test_the_last_ranks_share_the_trace_of_those_read_before(
    in_last_portion: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = dissemination(9, 100)
    monkeypatch.setattr(
        goal_file,
        "_BYTES_AT_ONCE",
        [at for at in range(len(text)) if text.startswith("rank ", at)][-in_last_portion],
    )
    (tmp_path / "a.goal").write_text(text)
    workload = read_workload(tmp_path / "a.goal")
    assert (len(workload.templates), workload.ranks) == (1, 9)


def test_an_unmatched_message_of_a_shared_program_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.goal"
    file.write_text(dissemination(8, 100).replace("recv 100b from", "recv 99b from"))
    with pytest.raises(TraceError, match="line 4: rank 0 has a send of 100 bytes with tag 0 that no recv of"):
        read_workload(file)


def test_a_machine_of_another_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.goal"
    file.write_text(dissemination(8, 100))
    with pytest.raises(
        TraceError, match=r"schedules of 8 ranks, but the machine has 4 NPUs \(describe a machine of 8"
    ):
        read_workload(file, 4)


def test_traces_of_a_prefix_come_before_a_text_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(dissemination(4, 100))
    assert convert(["goal", str(tmp_path / "a"), "-o", str(tmp_path / "a")]) == 0
    assert read_workload(tmp_path / "a").inputs[0][0] == str(tmp_path / "a.0.et")


def test_check_finds_its_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.goal"
    file.write_text(dissemination(4, 100))
    assert main(["check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 4
    file.write_text(file.read_text().replace("tag 0", "tag 9", 1))
    assert main(["check", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"et-sim: error: {file}: line 4: rank 0 has a send of 100 bytes with tag 9 that no"
    )


def test_the_lines_of_a_plain_text_are_counted_as_those_of_any_other(tmp_path: Path) -> None:
    text = "num_ranks 2\n\nrank 0 {\nl1: calc 5\nl2: send 5b to 1 tag 9\nl2 requires l1\n}\nrank 1 {\n}\n"
    for name, given in (("plain.goal", text), ("odd.goal", text.replace("calc 5\n", "calc 5 // five\n"))):
        (tmp_path / name).write_text(given)
        with pytest.raises(TraceError, match=rf"{name}: line 5: rank 0 has a send of 5 bytes"):
            read_workload(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "num_ranks is missing"),
        (b"// nothing but this\n", "num_ranks is missing"),
        (b"NUM_RANKS 1\n", r'line 1: "NUM_RANKS 1" is no statement of GOAL'),
        (gzip.compress(b"num_ranks 1\nrank 0 {\n}\n", mtime=0)[:20], "the gzip data is damaged"),
        *(
            (form % (b"9" * 5000), "line 3: a number of 5000 digits is too large")
            for form in (
                b"num_ranks 1\nrank 0 {\ncalc %s\n}\n",
                b"num_ranks 1\nrank 0 {\nsend 1b to %s\n}\n",
                b"num_ranks 1\nrank 0 {\ncalc 1 cpu %s\n}\n",
                b"\n\nnum_ranks %s\n",
            )
        ),
    ],
    ids=["empty", "comment", "capitals", "damaged", "duration", "peer", "processor", "ranks"],
)
def test_a_text_with_the_name_of_a_trace_is_refused_as_text(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / ("a.goal.gz" if content.startswith(b"\x1f\x8b") else "a.goal")
    file.write_bytes(content)
    with pytest.raises(TraceError, match=reason):
        read_workload(file)


def test_a_long_comment_before_it_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "a.goal").write_text("// " + 5000 * "x" + "\n" + dissemination(4, 100))
    assert read_workload(tmp_path / "a.goal").ranks == 4
