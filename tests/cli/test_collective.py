"""`et-sim collective`: the messages as text and as JSON, and refusals in sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from et_sim.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["collective", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads("\n".join(lines(capsys, *arguments, "--json")))
    return content


def test_equal_steps_of_all_ranks_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "ring", "--ranks", "8", "--bytes", "1MiB") == [
        "ring all_reduce: 8 ranks, each puts in 1 MiB (1048576 bytes)",
        "  rounds 0-6   steps 0-6   every rank sends 128 KiB to rank+1, reduces",
        "  rounds 7-13  steps 7-13  every rank sends 128 KiB to rank+1",
        "ranks 0-7: 14 messages and 1.75 MiB sent, 7 reductions charged",
    ]


def test_a_tree_is_shown_by_its_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "doubleBinaryTree", "--ranks", "3", "--bytes", "100", "--second-tree") == [
        "doubleBinaryTree all_reduce: 3 ranks, each puts in 100 bytes",
        "  round 0   100 B up, reduced: 1 -> 2",
        "  round 1   100 B up, reduced: 2 -> 0",
        "  round 2   100 B down, charged as a reduction to ranks with children: 0 -> 2",
        "  round 3   100 B down: 2 -> 1",
        "rank 0: 1 message and 100 B sent, 1 reduction charged",
        "rank 1: 1 message and 100 B sent, 0 reductions charged",
        "rank 2: 2 messages and 200 B sent, 2 reductions charged",
    ]


def test_a_rooted_tree_shows_the_sizes_of_its_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "tree", "--type", "gather", "--ranks", "6", "--bytes", "1KiB", "--root", "5") == [
        "tree gather: 6 ranks, each puts in 1 KiB (1024 bytes)",
        "  round 0   1 KiB up: 0 -> 1, 2 -> 1, 3 -> 4",
        "  round 1   3 KiB up: 1 -> 5",
        "  round 1   2 KiB up: 4 -> 5",
        "ranks 0,2-3: 1 message and 1 KiB sent, 0 reductions charged",
        "rank 1: 1 message and 3 KiB sent, 0 reductions charged",
        "rank 4: 1 message and 2 KiB sent, 0 reductions charged",
        "rank 5: 0 messages and 0 B sent, 0 reductions charged",
    ]


def test_json_of_a_scatter_names_the_share_of_each_message(capsys: pytest.CaptureFixture[str]) -> None:
    content = data(capsys, "tree", "--type", "scatter", "--ranks", "4", "--bytes", "10", "--root", "1")
    carried = {(m["source"], m["target"]): (m["bytes"], m["pieces"]) for m in content["messages"]}
    assert carried == {(1, 3): (20, [2, 3]), (1, 0): (10, [0]), (3, 2): (10, [2])}
    assert content["root"] == 1


def test_corrected_shows_the_corrected_profile(capsys: pytest.CaptureFixture[str]) -> None:
    reference = lines(capsys, "direct", "--window", "2", "--ranks", "5")
    corrected = lines(capsys, "direct", "--window", "2", "--ranks", "5", "--corrected")
    assert reference[-1] == "ranks 0-4: 8 messages and 1.6 MiB sent, 2 reductions charged"
    assert corrected[-1] == "ranks 0-4: 8 messages and 1.6 MiB sent, 4 reductions charged"
    as_ring = lines(capsys, "doubleBinaryTree", "--type", "all_gather", "--ranks", "5", "--corrected")
    assert as_ring[-1] == "doubleBinaryTree leaves all but all_reduce to a ring"


def test_json_has_every_message_and_its_content(capsys: pytest.CaptureFixture[str]) -> None:
    content = data(capsys, "direct", "--type", "reduce_scatter", "--ranks", "3", "--bytes", "300")
    assert (content["pieces"], content["rounds"], len(content["messages"])) == (3, 1, 6)
    assert content["per_rank"] == [
        {"ranks": "0-2", "messages": 2, "bytes_sent": 200, "reductions_charged": 2}
    ]
    assert content["messages"][0] == {
        "round": 0,
        "step": 0,
        "source": 0,
        "target": 1,
        "bytes": 100,
        "after_received": 0,
        "reduces": True,
        "reduction_charged": True,
        "pieces": [1],
    }


def test_a_window_is_the_same_as_in_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    named, given = (lines(capsys, *how, "--ranks", "9") for how in (["direct3"], ["direct", "--window", "3"]))
    assert named[1:] == given[1:]


def test_totals_agree_with_the_messages(capsys: pytest.CaptureFixture[str]) -> None:
    content = data(capsys, "doubleBinaryTree", "--ranks", "8", "--bytes", "1000")
    sent = sum(message["bytes"] for message in content["messages"])
    assert sent == 2 * 7 * 1000
    assert sum(m["reduction_charged"] for m in content["messages"]) == 7 + 3  # 3 inner ranks below the root


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rings", "--ranks", "4"], "collective algorithm 'rings' is not known"),
        (["halvingDoubling", "--ranks", "4", "--type", "all_to_all"], "cannot do an all-to-all"),
        (["ring", "--ranks", "1"], "--ranks is 1"),
        (["ring", "--ranks", "8", "--bytes", "7"], "7 bytes cannot be cut into 8 pieces"),
        (["doubleBinaryTree", "--ranks", "8", "--bytes", "0"], "there are no bytes to move"),
        (["ring", "--ranks", "8", "--window", "2"], "--window does not belong to ring"),
        (["direct", "--ranks", "8", "--window", "0"], "--window is 0"),
        (["ring", "--ranks", "8", "--second-tree"], "--second-tree does not belong to ring"),
        (["tree", "--ranks", "8"], "tree does not support the type all_reduce"),
        (["direct", "--ranks", "8", "--type", "gather"], "direct does not support the type gather"),
        (["all_reduce", "--ranks", "4"], "all_reduce is a type of collective, not an algorithm"),
        (["ring", "--ranks", "8", "--root", "1"], "--root does not belong to ring"),
        (["tree", "--ranks", "8", "--type", "scatter", "--root", "8"], "--root is 8"),
        (["ring", "--ranks", "1024", "--json"], "these are 2,095,104 messages, more than 1,000,000"),
        (["ring", "--ranks", "65536", "--type", "all_to_all"], "2,147,450,880 steps, more than 4,000,000"),
    ],
)
def test_impossible_requests_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collective", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err


def test_neither_numba_nor_arrow_is_loaded() -> None:
    program = "import sys; from et_sim.cli import main; main(['collective', 'ring', '--ranks', '4']); "
    program += "print(*(name for name in ('numba', 'pyarrow', 'networkx', 'yaml') if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == ""
