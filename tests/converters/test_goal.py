"""`et-convert goal`: every operation becomes a node, and unsupported statements are refused with
their line.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from goal_texts import incast, rank_texts, ring_all_reduce, traces_of
from hypothesis import given
from hypothesis import strategies as st

from converters.cli import main
from et_sim.basics.errors import TraceError
from et_sim.trace import NodeKind, Trace, read_workload
from et_sim.trace.goal.schedule import Totals

EXAMPLE = """\
// all features of the format
num_ranks 2
rank 0 { a: calc 100 cpu 0; b: send 8b to 1 tag 7 cpu 0 nic 0
  b requires a /* a comment
  over lines */ }
rank 1 {
r1: recv 8b from 0 tag 7;
calc 5
r2: recv 3b from 0
c: calc 20
r2 requires r1
c irequires r2
}
"""


def parents(trace: Trace) -> dict[int, list[int]]:
    return {row: result for row in range(len(trace)) if (result := trace.parents(row).tolist())}


def test_operations_become_nodes_and_dependencies_stay() -> None:
    text = EXAMPLE.replace("b requires a", "s: send 3b to 1 tag 0\n b requires a")
    first, second = traces_of(text)
    assert first.kind.tolist() == [NodeKind.COMP, NodeKind.SEND, NodeKind.SEND]
    assert first.duration_ns.tolist() == [100, 0, 0]
    assert first.comm_bytes.tolist() == [0, 8, 3]
    assert first.comm_tag.tolist() == [0, 7, 0]
    assert first.comm_dst.tolist() == [0, 1, 1]
    assert first.is_concurrent.all()
    assert parents(first) == {1: [0]}
    assert [second.node_name(row) for row in range(4)] == ["recv", "calc", "recv", "calc"]
    assert parents(second) == {2: [0], 3: [0]}


def test_nodes_that_begin_with_receives_have_the_dependencies_of_these() -> None:
    """Resolve any order of lines, and chains of several receives."""
    body = ["a: calc 1", "b: calc 2", "r: recv 1b from 1 tag 0", "q: recv 1b from 1 tag 1", "c: calc 3"]
    order = ["c irequires q", "q irequires r", "q requires b", "r requires a", "c requires b"]
    first = traces_of(rank_texts(2, [[*body, *order], ["send 1b to 0 tag 0", "send 1b to 0 tag 1"]]))[0]
    assert parents(first) == {2: [0], 3: [0, 1], 4: [0, 1]}


operations = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 9)), max_size=20
)


@given(operations, st.data())
def test_counts_and_sizes_are_those_of_the_text(
    messages: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    bodies: list[list[str]] = [[] for _ in range(4)]
    for source, target, size, tag in messages:
        if source == target:
            bodies[source].append(f"l{len(bodies[source])}: calc {size}")
        else:
            bodies[source].append(f"l{len(bodies[source])}: send {size}b to {target} tag {tag}")
            bodies[target].append(f"l{len(bodies[target])}: recv {size}b from {source} tag {tag}")
    edges = [set[tuple[int, int]]() for _ in bodies]
    for body, own in zip(bodies, edges, strict=True):
        for later in range(1, len(body)):
            own |= {(later, earlier) for earlier in data.draw(st.sets(st.integers(0, later - 1), max_size=2))}
    given = [
        [*body, *(f"l{later} requires l{earlier}" for later, earlier in sorted(own))]
        for body, own in zip(bodies, edges, strict=True)
    ]
    totals = Totals()
    result = traces_of(rank_texts(4, given), totals)
    assert [len(trace) for trace in result] == [len(body) for body in bodies]
    assert [{(row, to) for row, rows in parents(trace).items() for to in rows} for trace in result] == edges
    calcs = [size for source, target, size, _ in messages if source == target]
    sizes = [size for source, target, size, _ in messages if source != target]
    assert totals.count == {"calc": len(calcs), "send": len(sizes), "recv": len(sizes)}
    assert totals.size == {"calc": sum(calcs), "send": sum(sizes), "recv": sum(sizes)}
    assert sum(int(trace.duration_ns.sum()) for trace in result) == sum(calcs)


ONE = "num_ranks 1\nrank 0 {\n"
TWO = "num_ranks 2\nrank 1 { }\nrank 0 {\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "num_ranks is missing"),
        ("num_ranks 0", 1, "num_ranks is 0"),
        ("num_ranks 1\nnum_ranks 1", 2, "twice"),
        ("rank 0 {\n}", 1, "num_ranks is missing"),
        ("num_ranks 1\ncalc 5", 2, 'this statement is outside of a rank (write "rank R {" before it)'),
        ("num_ranks 1\nrank 1 { }", 2, "there is no rank 1 (there are ranks 0 to 0)"),
        ("num_ranks 1\nrank 0 { }\nrank 0 { }", 3, "rank 0 is given twice"),
        ("num_ranks 2\nrank 0 {\nrank 1 { }", 3, "rank 0 of line 2 is not closed"),
        (ONE, 2, "rank 0 is not closed"),
        ("num_ranks 3\nrank 0 { }\nrank 2 { }", None, "2 of 3 ranks, and rank 1 is missing"),
        (ONE + "a: clac 5\n}", 3, "\"a: clac 5\" is no statement of GOAL (did you mean 'calc'?)"),
        (ONE + "a: calc\n}", 3, 'forms: "num_ranks N"'),
        (ONE + "send 5 to 0\n}", 3, "is no statement of GOAL"),
        (ONE + "a: calc 5\na: calc 6\n}", 4, 'label "a" is that of line 3, too (rename one)'),
        (ONE + "a: calc 5\na requires b\nb: calc 5\n}", 4, 'label "b" has not been defined in rank 0'),
        *(
            (ONE + f"a: calc 10\nb: calc 5\nb requires u{number}\n}}", 5, "has not been defined in rank 0")
            for number in range(20)  # for any hashes
        ),
        (ONE + "l10: calc 5\nl10 requires l1\n}", 4, "did you mean 'l10'?"),
        (ONE + "a: calc 5\na requires a\n}", 4, '"a" waits for itself'),
        (ONE + "a: calc 5\nb: calc 5\nb irequires a\n}", 5, 'irequires "a", a calc: a trace cannot express'),
        (ONE + "a: calc 5 cpu 1\n}", 3, "cpu 1: a trace has one cpu per rank, and so has the LogGOPS model"),
        (ONE + "a: calc 5 tag 1\n}", 3, "a calc has no tag"),
        (ONE + f"a: calc {2**63}\n}}", 3, "is too large"),
        (TWO + "send 8b to 2 tag 1\n}", 4, "send to rank 2, which does not exist (there are ranks 0 to 1)"),
        (TWO + "send 8b to 1 tag 1 nic 2\n}", 4, "nic 2: a trace has one nic per rank"),
        (TWO + "recv 8b from -1 tag 1\n}", 4, "any source (-1)"),
        (TWO + "recv 8b from 1 tag -1\n}", 4, "any tag (-1)"),
        (TWO + "send 8b to 1 tag 500000000\n}", 4, "tag 500000000 is too large"),
        (
            TWO + "calc 1\nsend 8b to 1 tag 3\n}",
            5,
            "rank 0 has a send of 8 bytes with tag 3 that no recv of rank 1",
        ),
        (
            TWO + "recv 8b from 1 tag 3\n}",
            4,
            "rank 0 has a recv of 8 bytes with tag 3 that no send of rank 1",
        ),
        (
            "num_ranks 2\nrank 0 { send 8b to 1 }\nrank 1 { recv 9b from 0 }",
            2,
            "line 3 has 9 bytes and tag 0",
        ),
        (ONE + "calc 5 /* a\n}\n", None, "a comment is not closed"),
        (
            TWO + "a: recv 1b from 1\nb: recv 1b from 1\na irequires b\nb irequires a\n}",
            5,
            "wait for each other",
        ),
    ],
)
def test_faults_are_reported_with_their_line(
    text: str, line: int | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.goal"
    file.write_text(text, encoding="utf-8")
    assert main(["goal", str(file), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith(f"et-convert: error: {file}: " + (f"line {line}: " if line else ""))
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.goal"]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x1f\x8bnonsense", None])
def test_binary_input_is_refused(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.goal"
    if content is not None:
        file.write_bytes(content)
    assert main(["goal", str(file), "-o", str(tmp_path / "out")]) == 2
    assert str(file) in capsys.readouterr().err


def test_files_are_written_for_every_rank_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ring.goal.gz"
    file.write_bytes(gzip.compress(ring_all_reduce(4, 4096).encode()))
    prefix = str(tmp_path / "ring")
    (tmp_path / "ring.4.et").write_bytes(b"")  # of a larger set before
    assert main(["goal", str(file), "-o", prefix, "--json"]) == 0
    assert not (tmp_path / "ring.4.et").exists()
    report = json.loads(capsys.readouterr().out)["files"][0]
    assert report["format"] == "GOAL"
    assert report["outputs"] == [f"{prefix}.{rank}.et" for rank in range(4)]
    assert report["operations"]["send"] == {"nodes": 24, "bytes": 24 * 1024}
    workload = read_workload(prefix)
    wanted = traces_of(ring_all_reduce(4, 4096))
    for rank, trace in enumerate(wanted):
        read = workload.templates[workload.template_of_rank[rank]]
        assert read.kind.tolist() == trace.kind.tolist()
        assert parents(read) == parents(trace)
        assert read.comm_tag.tolist() == trace.comm_tag.tolist()


def test_only_the_current_rank_is_kept() -> None:
    """Check that a trace is yielded as soon as its rank is closed."""
    from et_sim.trace.goal.schedule import traces
    from et_sim.trace.goal.statements import statements

    def lines() -> object:
        yield from incast(2, 8).splitlines()[:5]
        raise AssertionError("read on")

    result = traces(statements(lines(), "a.goal"), "a.goal", Totals())  # type: ignore[arg-type]
    assert next(result)[0] == 0


def test_a_line_may_be_as_long_as_it_likes() -> None:
    with pytest.raises(TraceError) as caught:
        traces_of(ONE + "x" * 10**6 + "\n}")
    assert len(str(caught.value)) < 2000
