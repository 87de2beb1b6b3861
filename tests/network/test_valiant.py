"""Valiant routing on a dragonfly: through a drawn group, for each message, on any model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import sent, system

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.machine import read_network_alone
from et_sim.machine.model import GraphFabric, Network
from et_sim.network.packet.credit.classes import check_pairs
from et_sim.network.route_tables import NONE, route_tables
from et_sim.network.routes import names_on, next_link, path_between, ports_of_flow, stop_after
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.views import open_run
from et_sim.views.run.slices import link_table

GROUPS, ROUTERS, EACH = 7, 3, 2
IN_GROUP = ROUTERS * EACH
RANKS = GROUPS * IN_GROUP
DRAGONFLY = {
    "generator": "dragonfly",
    "groups": GROUPS,
    "routers-per-group": ROUTERS,
    "npus-per-router": EACH,
    "bandwidth": "100Gbps",
    "latency": "500ns",
}
MODELS = ("analytical", "link", "flow")


def described(routing: str, **keys: Any) -> dict[str, Any]:
    return {"graph": DRAGONFLY, "routing": routing, "logical-dimensions": [RANKS], **keys}


def groups_on(names: list[str]) -> list[int]:
    """Return the groups of the routers on a path, once for each entry."""
    groups = [int(name.removeprefix("router")) // ROUTERS for name in names if name.startswith("router")]
    return [group for at, group in enumerate(groups) if at == 0 or group != groups[at - 1]]


def way(machine: Network, source: int, target: int, message: int) -> list[str]:
    """Return the devices on the path of message number `message` between two ranks."""
    tables, ports = route_tables(machine), ports_of_flow(message)
    assert isinstance(machine.fabric, GraphFabric)
    graph = machine.fabric.graph
    device, stop, links = int(tables.device_of[source]), source, []
    while device != tables.device_of[target]:
        stop = int(stop_after(tables, device, stop, source, target, ports))
        links.append(int(next_link(tables, device, stop, source, target, ports)))
        device = int(tables.target[links[-1]])
    return names_on(graph, links)


def test_messages_go_by_way_of_another_group_and_stay_in_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the local and global links to the other group and from there, and the links of the NPUs."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    machine = read_network_alone(described("valiant"))
    tables = route_tables(machine)
    assert isinstance(machine.fabric, GraphFabric)
    for source in (0, 8, RANKS - 1):
        for target in range(RANKS):
            names = names_on(machine.fabric.graph, path_between(tables, source, target))
            own, other = source // IN_GROUP, target // IN_GROUP
            if own == other:
                assert groups_on(names) == ([own] if source != target else [])
                continue
            first, between, last = groups_on(names)
            assert (first, last) == (own, other)
            assert between not in (own, other)
            assert len(names) - 1 <= 1 + 2 + 2 + 1 + 1
            assert len(set(names)) == len(names)


def drawn_groups(machine: Network, source: int, target: int, messages: int) -> list[int]:
    """Return the drawn groups of consecutive messages, as stops."""
    tables, device = route_tables(machine), route_tables(machine).device_of[source]
    ports = [ports_of_flow(number) for number in range(messages)]
    return [int(stop_after(tables, device, source, source, target, port)) - RANKS for port in ports]


def test_groups_are_drawn_for_each_message_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    machines = [read_network_alone(described("valiant", seed=seed)) for seed in (0, 0, 1)]
    drawn = [drawn_groups(machine, 0, RANKS - 1, 200) for machine in machines]
    assert drawn[0] == drawn[1] != drawn[2]
    assert set(drawn[0]) == set(range(1, GROUPS - 1))
    assert max(np.bincount(drawn[0])) < 3 * 200 / (GROUPS - 2)


def messages(pairs: list[tuple[int, int]], size: int) -> Workload:
    return sent(RANKS, [(*pair, size) for pair in pairs])


@pytest.mark.parametrize("model", MODELS)
def test_a_lone_message_pays_for_every_link_of_its_way(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    net, size = described("valiant"), 1_250_000
    names = way(read_network_alone(net), 3, 40, 0)
    links = len(names) - 1
    result = run(messages([(3, 40)], size), network=net, system=system(), model=model)
    sent = 100_000 * (links if model == "link" else 1)
    assert result.makespan_ns == links * 500 + sent


@pytest.mark.deep
@pytest.mark.parametrize("model", ["link", "flow"])
def test_neighbouring_groups_do_not_share_one_link_any_more(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check NPUs of a group that all send to the next group: minimally, over one global link."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    each, size = 8, 125_000
    graph = DRAGONFLY | {"local-links": {"bandwidth": "400Gbps"}, "global-links": {"bandwidth": "100Gbps"}}
    pairs = [(rank, (rank + IN_GROUP) % RANKS) for rank in range(RANKS) for _ in range(each)]
    most, took = [], []
    for number, routing in enumerate(("shortest", "valiant", "valiant")):
        on = system(profile="corrected")
        net = {"graph": graph, "routing": routing, "logical-dimensions": [RANKS]}
        result = run(messages(pairs, size), network=net, system=on, model=model, detail="links")
        write_run(result, tmp_path / str(number))
        table = link_table(open_run(tmp_path / str(number)))
        assert table is not None
        of_globals = [len(groups_on(name.split("->"))) == 2 for name in table.name]
        most.append(int(table.total("bytes")[of_globals].max()))
        took.append(result.makespan_ns)
    assert most[0] == IN_GROUP * each * size
    assert most[1] == most[2] < 0.6 * most[0]
    assert took[1] == took[2] < 0.8 * took[0]


@pytest.mark.deep
def test_ways_of_messages_are_not_folded_where_they_share_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    build, ranks = TraceBuilder(), 16
    build.collective("all_reduce", ranks * 1000)
    work = Workload.of([build.build()] * ranks)
    net = {"graph": {**DRAGONFLY, "groups": 4, "routers-per-group": 2}, "logical-dimensions": [ranks]}
    for model in ("analytical", "flow"):
        runs = [
            run(work, network={**net, "routing": "valiant"}, system=system(), model=model, fold=fold)
            for fold in (True, False)
        ]
        assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()
        assert model == "analytical" or len(runs[0].outcome.plan.actors) == ranks


def test_acknowledgements_draw_groups_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    net = described("valiant", protocol={"preset": "roce"})
    result = run(messages([(3, 40)], 10_000), network=net, system=system(), model="flow")
    assert result.makespan_ns > 0


def test_nodes_behind_a_dragonfly_keep_to_their_own_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    inner = {"generator": "switch", "npus": 2, "bandwidth": "450GB/s"}
    outer = {**DRAGONFLY, "nic": {"bandwidth": "64GB/s"}}
    graph = {"generator": "nested", "copies": RANKS // 2, "inner": inner, "outer": outer}
    machine = read_network_alone({"graph": graph, "routing": "valiant"})
    assert way(machine, 0, 1, 0) == ["npu0", "group0.switch0", "npu1"]
    assert len(groups_on(way(machine, 0, RANKS - 1, 0))) == 3


def test_two_groups_have_no_third_and_failed_links_are_gone_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    two = read_network_alone({"graph": {**DRAGONFLY, "groups": 2}, "routing": "valiant"})
    assert groups_on(way(two, 0, 2 * IN_GROUP - 1, 5)) == [0, 1]
    failed = [{"between": ["router0", "router5"], "failed": True}]
    broken = read_network_alone(described("valiant", overrides=failed))
    for message in range(20):
        names = way(broken, 0, RANKS - 1, message)
        assert names[-1] == f"npu{RANKS - 1}"
        assert ("router0", "router5") not in set(pairwise(names))


@pytest.mark.parametrize(
    "graph",
    [
        {"generator": "switch", "npus": 4, "bandwidth": "1GB/s"},
        {
            "generator": "nested",
            "copies": 2,
            "inner": {**DRAGONFLY, "groups": 2},
            "outer": {"generator": "ring", "npus": 2, "bandwidth": "1GB/s"},
            "attach": "gateways",
        },
    ],
)
def test_other_networks_are_refused(graph: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match="this network is not a dragonfly"):
        read_network_alone({"graph": graph, "routing": "valiant"})


def test_stops_are_no_ranks() -> None:
    tables = route_tables(read_network_alone(described("valiant")))
    assert (tables.device_of[RANKS:] == NONE).all()
    assert len(tables.device_of) == RANKS + GROUPS


def test_credits_want_one_way_for_each_pair() -> None:
    with pytest.raises(MachineError, match="valiant takes several"):
        check_pairs(read_network_alone(described("valiant")))
