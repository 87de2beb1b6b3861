"""A table names the network between nodes in words, which become options of a machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_sim.machine.presets import preset
from et_sim.validation.networks import NodeCards, Stated, machine_measured, nodes_in_words, stated
from et_sim.validation.row import Collective
from et_sim.validation.tables import read_tables


@pytest.mark.parametrize(
    ("text", "cards", "kind"),
    [
        ("8x200 Gb/s NIC per node, GPUDirect-TCPXO", NodeCards(8, 200), "tcpx"),
        ("8x2x100 Gb/s RoCE", NodeCards(8, 200), "roce"),
        ("8 \u00d7 2 \u00d7 100 Gbit/s", NodeCards(8, 200), ""),
        ("4x100 Gb/s EFA per node", NodeCards(4, 100), "efa"),
        ("32x100 Gb/s EFA per node (3200 Gb/s)", NodeCards(32, 100), "efa"),
        ("16x200Gbps EFAv3", NodeCards(16, 200), "efa"),
        ("NVLink3 + NVSwitch; 4x HDR 200 Gb/s IB per node", NodeCards(4, 200), "infiniband"),
        ("NVLink2 (6 links/GPU); 2x EDR 100 Gb/s IB per node", NodeCards(2, 100), "infiniband"),
        ("8x ConnectX-7 400Gb/s IB per node", NodeCards(8, 400), "infiniband"),
        (
            "8x ConnectX-7 NDR 400Gb/s InfiniBand per node (ib_write_bw 39.5-45 GB/s)",
            NodeCards(8, 400),
            "infiniband",
        ),
        ("8x400 Gb/s (Broadcom Thor2) RoCE per node", NodeCards(8, 400), "roce"),
        ("Infinity Fabric inside node; 8x400 Gb/s Pollara between nodes", NodeCards(8, 400), "roce"),
        ("8x NDR InfiniBand", NodeCards(8, 400), "infiniband"),
        ("4x Slingshot 11", NodeCards(4, 200), "slingshot"),
        ("4x Slingshot-11 200 Gb/s", NodeCards(4, 200), "slingshot"),
        ("NVL72 + 400 Gb/s NDR IB per GPU", NodeCards(0, 400), "infiniband"),
        (
            "NVSwitch inside node; 800 Gb/s per node (4x HDR) between nodes",
            NodeCards(4, 800, True),
            "infiniband",
        ),
        ("3200 Gbps per node", NodeCards(0, 3200, True), ""),
        ("12x NVLink3 and 8\u00d7100Gbps", NodeCards(8, 100), ""),
        ("NVLink inside; inter-node NIC of the cluster (about 8 GB/s seen)", NodeCards(1, 64), ""),
        ("HPE Slingshot 11 (aws-ofi/CXI)", None, "slingshot"),
        ("IB NDR (NICs per node not stated in this post)", None, "infiniband"),
        ("NVLink5 inside a rack (64 GPUs used per rack), RoCE between racks", None, "roce"),
        ("450 GB/s NVLink", None, ""),
        ("", None, ""),
    ],
)
def test_each_form_of_words_is_read(text: str, cards: NodeCards | None, kind: str) -> None:
    assert stated(text) == Stated(cards, kind)


@pytest.mark.parametrize(
    "text",
    [
        "A100: 8x200 Gb/s, H100: 8x400 Gb/s",
        "4x100 Gb/s EFA, or 8x200 Gb/s HDR InfiniBand",
        "RoCE on some nodes, InfiniBand on others",
    ],
)
def test_a_text_with_several_networks_determines_no_machine(text: str) -> None:
    assert stated(text) == Stated()


def test_the_network_of_a_system_is_that_which_its_operator_publishes_unless_the_table_states_cards() -> None:
    assert stated("HPE Slingshot 11", "NREL Kestrel") == Stated(NodeCards(2, 200), "slingshot")
    assert stated("1x200 Gb/s Slingshot", "NREL Kestrel") == Stated(NodeCards(1, 200), "slingshot")


@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "hardware", "network", "machine", "is_stated"),
    [
        ("h100-dgx", 16, 2, "8xH100", "8x400 Gb/s IB", "cards=8x400Gbps,network=infiniband", True),
        ("h100-dgx", 8, 1, "8xH100", "8x400 Gb/s IB", "", True),
        ("h100-dgx", 16, 2, "8xH100", "", "network=unknown", False),
        ("h100-dgx", 16, 2, "8xH100", "8x400 Gb/s", "cards=8x400Gbps,network=unknown", False),
        ("h100-dgx", 2, 2, "8xH100", "8x400 Gb/s IB", "node=1,cards=1x400Gbps,network=infiniband", True),
        ("h100-dgx", 4, 2, "8xH100", "8x400 Gb/s IB", "node=2,cards=2x400Gbps,network=infiniband", True),
        ("a100-dgx-80gb", 2, 2, "8xA100", "1x100 Gb/s IB", "node=1,cards=1x100Gbps,network=infiniband", True),
        ("a100-dgx-80gb", 16, 2, "P4d", "4x100 Gb/s EFA", "cards=4x100Gbps,network=efa-1", True),
        ("h100-dgx", 16, 2, "P5", "32x100 Gb/s EFA", "cards=32x100Gbps,network=efa", True),
        ("gb200-nvl72", 64, 16, "NVL72", "", "", True),
        ("gb200-nvl72", 72, 18, "NVL72", "", "", True),
        ("gb200-nvl72", 128, 32, "NVL72", "RoCE", "node=64,network=roce", False),
        ("gb200-nvl72", 256, 0, "256 DGX-GB200", "", "node=64,network=unknown", False),
        ("gb200-nvl72", 144, 36, "NVL72", "400 Gb/s IB per GPU", "cards=72x400Gbps,network=infiniband", True),
        ("l40s-node", 16, 2, "8xL40S", "2x100 Gb/s RoCE", "cards=2x100Gbps,network=roce", True),
        ("h100-dgx", 64, 0, "H100", "800 Gb/s per node (4x HDR)", "cards=4x200Gbps,network=infiniband", True),
        ("trn2-node", 32, 2, "Trn2", "16x200 Gb/s EFA", "", True),
    ],
)
def test_nodes_and_network_of_a_table_are_options_of_a_machine(
    name: str, ranks: int, nodes: int, hardware: str, network: str, machine: str, is_stated: bool
) -> None:
    measured = machine_measured(name, ranks, nodes, hardware, network)
    assert measured.text == f"{name}:{ranks}" + (f",{machine}" if machine else "")
    assert measured.is_stated == is_stated
    assert bool(measured.accuracy) != is_stated
    assert preset(measured.text).npus == ranks


@pytest.mark.parametrize(
    ("name", "hardware", "board"),
    [
        ("v100-dgx-1", "4xV100-SXM2-16GB", "v100-quad"),
        ("v100-dgx-1", "V100-SXM2", "v100-quad"),
        ("h100-dgx", "NREL Kestrel (4xH100 SXM per node)", "h100-quad"),
        ("a100-dgx-40gb", "4x A100", "a100-quad"),
        ("a100-dgx-80gb", "4x NVIDIA A100", "a100-quad"),
        ("h100-dgx", "8xH100", "h100-dgx"),
        ("a100-pcie-node", "4xA100-PCIE", "a100-pcie-node"),
    ],
)
def test_nodes_of_four_gpus_are_boards_of_four_where_that_is_stated(
    name: str, hardware: str, board: str
) -> None:
    assert machine_measured(name, 16, 4, hardware, "4x200 Gb/s IB").text.partition(":")[0] == board


@pytest.mark.parametrize("words", ["nodes of 4", "in nodes of 4", "4 per node", "4 GPUs per node"])
def test_words_state_the_size_of_nodes_where_their_number_is_not_stated(words: str) -> None:
    hardware = f"V100-SXM2 {words}"
    assert [nodes_in_words(hardware, ranks) for ranks in (2, 4, 8, 16)] == [1, 1, 2, 4]
    assert nodes_in_words("V100-SXM2", 16) == 0
    measured = machine_measured("v100-dgx-1", 16, nodes_in_words(hardware, 16), hardware, "2x100 Gb/s IB")
    assert measured.text == "v100-quad:16,cards=2x100Gbps,network=infiniband"
    assert machine_measured("v100-dgx-1", 16, 0, "V100-SXM2", "").text.startswith("v100-dgx-1:16")


def test_collectives_without_a_number_of_nodes_are_on_nodes_of_the_size_in_words() -> None:
    def nodes(**keys: Any) -> tuple[int | None, str]:
        table = {"id": "t", "hardware": "V100-SXM2 nodes of 4", "gpus": 8, "collective": "all_reduce"}
        (row,) = read_tables(Path("t.json"), json.dumps([{**table, "rows": [[8, 30.0]], **keys}]))
        return (row.job.nodes, row.why) if isinstance(row.job, Collective) else (None, row.why)

    assert nodes() == (2, "")
    assert nodes(gpus=4) == nodes(hardware="V100-SXM2") == nodes(nodes=1) == (1, "")
    assert "gpus is 10, which is not a multiple of the 4 of a node" in nodes(gpus=10)[1]
