"""The content of recorded communications, in every form of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from converters.pytorch.calls import UNNAMED, rules
from converters.pytorch.columns import ABSENT, ProcessGroup
from converters.pytorch.communication import (
    ArgumentValues,
    Communication,
    from_annotation,
    from_nccl,
    from_operator,
    from_record,
    shape_bytes,
)
from converters.pytorch.graph import EventTally
from converters.pytorch.groups import RankGroups

TENSOR = "GenericList[Tensor(float)]"
SPLITS = "GenericList[Int,Int]"


def record(
    values: list[Any], types: list[str], in_bytes: dict[int, int], out_bytes: int, **fields: Any
) -> Communication:
    result = from_record(ArgumentValues(values, types, in_bytes, out_bytes), fields)
    assert result is not None
    return result


def test_the_oldest_record_has_no_group_and_ends_with_splits() -> None:
    types = ["Tensor(float)", "Int", "Int", "Int", "String", SPLITS, SPLITS]
    values = [[1, 2, 0, 6144, 4, "cuda:0"], 147, 93891384002768, 2, "all_to_allv", [768, 5376], [3072, 3072]]
    recording = record(values, types, {0: 24576}, 24576)
    assert (recording.operation.label, recording.comm_bytes) == ("all_to_all", 24576)
    assert (recording.in_splits, recording.out_splits) == ((768, 5376), (3072, 3072))
    assert (recording.group, recording.group_size) == ("", -1)


def test_a_later_record_ends_with_the_size_of_the_group() -> None:
    types = [TENSOR, "Int", "Int", "Int", "String", "GenericList[]", "GenericList[]", "Int"]
    recording = record(
        [[[1, 2, 0, 64, 2, "cuda:0"]], 337, 938, 0, "allreduce", [], [], 8], types, {0: 128}, 128
    )
    assert (recording.operation.label, recording.comm_bytes, recording.group_size, recording.root) == (
        "all_reduce",
        128,
        8,
        -1,
    )


def test_a_record_since_1_0_3_names_its_group_and_its_regular_ranks() -> None:
    types = [
        TENSOR,
        "Int",
        "Tuple[String,String]",
        "Int",
        "String",
        "GenericList[]",
        "GenericList[]",
        *["Int"] * 3,
    ]
    values = [[[1, 2, 0, 53, 8, "cuda:0"]], 32, ["5", "dp"], 1, "broadcast", [], [], 2, 4, 3]
    recording = record(values, types, {0: 424}, 424)
    assert (recording.operation.label, recording.group, recording.root) == ("broadcast", "5", 1)
    assert recording.group_ranks == (2, 6, 10)


def test_named_attributes_win_over_positions() -> None:
    types = [TENSOR, "Int", "Tuple[String,String]", "Int", "String"]
    output = {"pg_name": "7", "pg_size": 4, "dtype": "BFloat16", "in_msg_nelems": 10, "out_msg_nelems": 40}
    recording = record([[], 32, ["5", "dp"], 1, "_allgather_base"], types, {}, 0, **output)
    assert (recording.group, recording.group_size, recording.in_bytes, recording.out_bytes) == (
        "7",
        4,
        20,
        80,
    )


@pytest.mark.parametrize("name", ["wait", "init", "something new"])
def test_records_that_transfer_nothing_or_are_unknown_give_nothing(name: str) -> None:
    given = ArgumentValues(
        [31, ["", ""], 0, name, [], [], -1, -1, 1], ["Int", "Tuple", "Int", "String"], {}, 0
    )
    assert from_record(given, {}) is None


def nccl(**fields: Any) -> Communication:
    nothing = {
        "operation": "allreduce", "dtype": "Float", "in_elements": 1, "out_elements": 1, "group_size": 2,
        "group_name": "", "group_description": "", "group_ranks": "", "rank_start": -1, "rank_stride": -1,
        "in_splits": "[]", "out_splits": "[]", "source": -1, "destination": -1, "number": -1,
    }  # fmt: skip
    result = from_nccl(nothing | fields)
    assert result is not None
    return result


def test_arguments_of_kernels_hold_elements_and_ranks() -> None:
    result = nccl(
        operation="_allgather_base", dtype="BFloat16", in_elements=25136, out_elements=201088, group_size=8
    )
    assert (result.operation.label, result.in_bytes, result.out_bytes) == ("all_gather", 50272, 402176)
    assert nccl(group_ranks="[4, 5]").group_ranks == (4, 5)


def test_a_shortened_list_of_ranks_is_made_whole_from_start_and_stride() -> None:
    result = nccl(group_ranks="[0, 8, ..., 56]", rank_start=0, rank_stride=8, group_size=8)
    assert result.group_ranks == tuple(range(0, 64, 8))
    assert nccl(group_ranks="[0, 3, ..., 9]", group_size=4).group_ranks == ()


def test_kernels_name_peers_among_all_ranks() -> None:
    assert nccl(operation="send", destination=12).peer == 12
    assert nccl(operation="recv", source=3, in_elements=0, out_elements=7).peer == 3
    assert nccl(operation="recv", source=3, in_elements=0, out_elements=7).comm_bytes == 28


def test_operators_write_their_first_argument() -> None:
    given = ArgumentValues(
        [[1], [2], "<Object>", False, -1],
        ["Tensor(float)", "Tensor(float)", "Object", "Bool", "Int"],
        {0: 64, 1: 16},
        64,
    )
    result = from_operator("c10d::_allgather_base_", given)
    assert result is not None
    assert (result.in_bytes, result.out_bytes, result.group_size) == (16, 64, 4)


def test_functional_operators_name_their_group() -> None:
    given = ArgumentValues([[1], "sum", "6"], ["Tensor(float)", "String", "String"], {0: 24}, 24)
    result = from_operator("_c10d_functional::all_reduce", given)
    assert result is not None
    assert (result.operation.label, result.group, result.comm_bytes) == ("all_reduce", "6", 24)


def test_messages_of_operators_have_a_peer_in_the_group_and_a_tag() -> None:
    given = ArgumentValues([[[1]], "<Object>", 1, 17], [TENSOR, "Object", "Int", "Int"], {0: 8}, 0)
    result = from_operator("c10d::send", given)
    assert result is not None
    assert (result.operation.label, result.root, result.tag) == ("send", 1, 17)


def test_splits_of_operators_are_in_the_order_of_the_signature() -> None:
    types = [
        "Tensor(float)",
        "Tensor(float)",
        "Object",
        "GenericList[Int,Int]",
        "GenericList[Int,Int]",
        "Int",
    ]
    result = from_operator(
        "c10d::alltoall_base_",
        ArgumentValues([[1], [2], "<Object>", [3, 1], [2, 2], -1], types, {0: 16, 1: 16}, 0),
    )
    assert result is not None
    assert (result.out_splits, result.in_splits) == ((3, 1), (2, 2))


def test_annotations_have_the_bytes_of_their_shapes() -> None:
    assert shape_bytes([[4, 2048], [[8], [2, 2]], []], ["c10::Half", "GenericList[float]", "Scalar"]) == [
        16384,
        48,
        0,
    ]
    result = from_annotation("nccl:_all_gather_base", 16384)
    assert result is not None
    assert (result.operation.label, result.comm_bytes) == ("all_gather", 16384)


@pytest.mark.parametrize(
    ("kernel", "operation"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce"),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "allreduce"),
        ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST", "allreduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reducescatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", UNNAMED),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", UNNAMED),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
            "allreduce",
        ),
        ("ampere_sgemm_128x64_nn", None),
        ("void at::native::reduce_kernel<512, 1>", None),
    ],
)
def test_kernels_are_recognised_by_their_names(kernel: str, operation: str | None) -> None:
    assert rules().kernel(kernel) == operation


@pytest.mark.parametrize(
    ("datatype", "size"),
    [("float", 4), ("c10::BFloat16", 2), ("long int", 8), ("Float8_e4m3fn", 1), ("Scalar", 0), ("", 0)],
)
def test_datatypes_have_sizes(datatype: str, size: int) -> None:
    assert rules().bytes_of(datatype) == size


def a_communication(**fields: Any) -> Communication:
    return Communication(rules().operations["allreduce"], 8, 8, **fields)


def test_a_group_is_found_by_its_ranks_or_its_size() -> None:
    groups = RankGroups(1, 4, EventTally(), {"0": (), "1": (0, 1), "4": (1, 2, 3)})
    assert groups.resolve(a_communication(group_ranks=(0, 1))).group == "1"
    assert groups.resolve(a_communication(group_size=3)).group == "4"
    assert groups.resolve(a_communication(group_size=4)).group == ""
    assert not groups.tally.counts


def test_a_group_that_could_be_several_is_all_ranks_and_counted() -> None:
    groups = RankGroups(1, 4, EventTally(), {"0": (), "1": (0, 1), "4": (1, 3)})
    assert groups.resolve(a_communication(group_size=2)).group == ""
    assert groups.resolve(a_communication()).group == ""
    assert sum(groups.tally.counts.values()) == 2


def test_members_from_a_kernel_alone_are_kept() -> None:
    groups = RankGroups(9, 16, EventTally())
    assert groups.resolve(a_communication(group="25", group_ranks=(1, 9))).group == "25"
    assert groups.described() == {"25": (1, 9)}


def test_peers_and_roots_become_ranks_of_all() -> None:
    groups = RankGroups(9, 16, EventTally(), {"25": (1, 9)})
    sent = Communication(rules().operations["send"], 8, 0, group="25", root=0)
    assert groups.resolve(sent).peer == 1
    rooted = Communication(rules().operations["broadcast"], 8, 0, group="25", root=1)
    assert groups.resolve(rooted).peer == 9


def test_a_message_without_a_peer_is_counted() -> None:
    groups = RankGroups(0, 4, EventTally())
    assert groups.resolve(Communication(rules().operations["send"], 8, 0)).peer == -1
    assert sum(groups.tally.counts.values()) == 1


def test_groups_of_others_are_not_described() -> None:
    from converters.pytorch.groups import collect_groups

    class Device:
        rank, world_size = 0, 4
        groups = (
            ProcessGroup("0", "default", (0, 1, 2, 3), 4, "nccl"),
            ProcessGroup("1", "", (0, 1), 2, "nccl"),
            ProcessGroup("2", "", (), 2, "nccl"),
        )

    result = collect_groups(None, Device(), EventTally())  # type: ignore[arg-type]
    assert result.described() == {"1": (0, 1)}
    assert result.rank != ABSENT
