"""Roles, groups and refusals of recordings, without PyTorch."""

from __future__ import annotations

import pytest

from et_sim.basics.errors import TraceError, UsageError
from et_sim.trace import shapes
from et_sim.trace.group_rule import GroupRule
from et_sim.workloads.software.reading import read_software
from recorder.cli import main
from recorder.launching import is_supported
from recorder.recorded import RankRecording, RecordedGroup, RecordedKind, RecordedNode, StepPhase
from recorder.roles import fold, missing_ranks
from recorder.workload import rule_of


def _kernel(name: str, after: list[int], size: int = 64) -> RecordedNode:
    return RecordedNode(
        RecordedKind.KERNEL, name, "layer", StepPhase.FORWARD, 0, 0, after, bytes=size, operations=size
    )


def _stage(rank: int, world: int = 8, stages: int = 4) -> RankRecording:
    """Return a stage of a pipeline whose neighbours are neighbouring ranks."""
    place, first = rank % stages, rank - rank % stages
    nodes = [_kernel("mm", [])]
    group = {"group": 0, "bytes": 128}
    if place:
        nodes.append(
            RecordedNode(
                RecordedKind.RECEIVE, "receive", "", StepPhase.FORWARD, 0, 1, [0], peer=rank - 1, **group
            )
        )
    if place < stages - 1:
        nodes.append(
            RecordedNode(RecordedKind.SEND, "send", "", StepPhase.FORWARD, 0, 2, [0], peer=rank + 1, **group)
        )
    return RankRecording(rank, world, nodes, [RecordedGroup(list(range(first, first + stages)), "pp")])


@pytest.mark.parametrize(
    ("members", "rank", "world", "expected"),
    [
        (range(8, 16), 10, 64, GroupRule(8, 1)),
        (range(2, 64, 8), 10, 64, GroupRule(8, 8)),
        ((0, 1, 8, 9), 9, 16, GroupRule((2, 2), (1, 8))),
        ((0, 3), 3, 8, GroupRule(2, 3, every=4)),
        ((5,), 5, 8, GroupRule(1)),
        ((0, 1, 5), 0, 8, None),
    ],
)
def test_groups_of_evenly_spaced_ranks_follow_a_rule(
    members: range, rank: int, world: int, expected: GroupRule | None
) -> None:
    assert rule_of(members, rank, world) == expected


def test_stages_of_a_pipeline_are_roles_and_others_follow_them() -> None:
    workload, stands_for = fold([_stage(rank) for rank in range(4)])
    assert stands_for == {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7"}
    assert workload.template_of_rank.tolist() == [0, 1, 2, 3] * 2
    assert workload.trace(5).comm_dst.tolist()[-1] == 1  # a distance


def test_an_unrecorded_role_is_named() -> None:
    assert missing_ranks([_stage(0)], 8) == [1, 2, 3]
    with pytest.raises(UsageError, match=r"rank 1 has a place .*--ranks 0-3, or --ranks auto"):
        fold([_stage(0)])


def test_ranks_of_one_role_that_differ_are_refused_with_the_first_difference() -> None:
    other = _stage(4)
    other.nodes[0] = _kernel("bmm", [])
    with pytest.raises(TraceError, match=r"ranks 0 and 4 .* node 0 of rank 0 is .*mm.* rank 4 .*bmm"):
        fold([*(_stage(rank) for rank in range(4)), other])


def test_ranks_of_one_role_that_agree_share_a_template() -> None:
    workload, _ = fold([_stage(rank) for rank in range(8)])
    assert len({id(workload.trace(rank)) for rank in range(8)}) == 4


def test_one_step_is_cut_out_with_its_own_dependencies() -> None:
    nodes = [_kernel("mm", []), _kernel("add", [0]), _kernel("mul", [0, 1])]
    nodes[1].step = nodes[2].step = 1
    workload, _ = fold([RankRecording(0, 4, nodes)], step=1)
    assert len(workload.templates[0]) == 2
    assert workload.templates[0].data_deps.tolist() == [0]
    with pytest.raises(TraceError, match="no work of step 7"):
        fold([RankRecording(0, 4, nodes)], step=7)


def test_a_broadcast_keeps_its_root_only_with_the_option() -> None:
    node = RecordedNode(
        *(RecordedKind.COLLECTIVE, "broadcast", "", StepPhase.SETUP, -1, 0, []),
        bytes=1000,
        collective="broadcast",
        group=0,
        root=0,
    )
    recorded = RankRecording(1, 3, [node], [RecordedGroup([0, 1, 2], "default_pg")])
    folded, rooted = fold([recorded])[0], fold([recorded], keep_roots=True)[0]
    assert (folded.templates[0].comm_type[0], folded.templates[0].comm_bytes[0]) == (2, 334)
    assert (rooted.templates[0].comm_type[0], rooted.templates[0].comm_bytes[0]) == (5, 1000)


def test_software_chooses_kernels_of_attention_and_their_factor() -> None:
    node = _kernel("attend", [])
    node.shape = shapes.attention(1, 4, 64, 64, 16, causal=True)
    software = read_software("torchtitan")
    workload, _ = fold([RankRecording(0, 4, [node])], software=software)
    assert workload.templates[0].layer_shapes[-1] == "attention 1 4 4 64 64 16 causal flash-2"
    assert workload.software is not None
    assert (workload.software.name, workload.software.kernels) == ("torchtitan", software.kernels)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.13.0+cpu", True), ("2.15.1", True), ("2.12.1", False), ("2.16.0", False), ("3.0.0", False)],
)
def test_versions_of_pytorch_are_those_that_were_tried(version: str, expected: bool) -> None:
    assert is_supported(version) is expected


def test_the_command_prints_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--world N" in capsys.readouterr().out
