"""The packet model over TCP keeps the rules of every network model, as in `test_network_models`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import simulate, system
from test_network_models import (
    EVERYTHING,
    GRID,
    KINDS,
    ROOTED,
    eager_and_some_with_rendezvous,
    exchange,
    folded_and_not,
    of_all_ranks,
)

from et_sim.timeline.writer import write_run

LOSSY = GRID | {
    "protocol": {
        "preset": "tcp",
        "queue-packets": 5,
        "tcp": {"least-timeout": "50us", "first-timeout": "1ms"},
    }
}
PER_MESSAGE = {"tcp": {"per-message": True, "first-timeout": "1ms", "least-timeout": "50us"}}
OPENED = GRID | {"protocol": {"preset": "tcp", "completion": "acknowledgement"} | PER_MESSAGE}


@pytest.mark.parametrize("net", [LOSSY, OPENED], ids=["lossy", "opened"])
@pytest.mark.parametrize(
    ("kind", "rendezvous"), eager_and_some_with_rendezvous([KINDS[0], KINDS[3], ROOTED[2]])
)
def test_every_collective_completes_and_folding_changes_nothing(
    net: dict[str, Any], kind: str, rendezvous: bool
) -> None:
    assert folded_and_not(net, "packet", kind, rendezvous)


@pytest.mark.parametrize("net", [LOSSY, OPENED], ids=["lossy", "opened"])
def test_all_bytes_that_are_sent_arrive_once(net: dict[str, Any]) -> None:
    sizes = {(0, 1): 5000, (1, 0): 1, (2, 5): 77, (11, 0): 10**5, (7, 7): 4096, (0, 2): 5000}
    result = simulate(
        exchange(12, sizes), net, system(dimensions=3), model="packet", detail=EVERYTHING, fold=False
    )
    assert result.is_complete
    table = result.table("messages").to_pydict()
    assert all(n is not None for n in table["arrived_ns"])


@pytest.mark.deep
def test_a_run_repeats_to_the_byte(tmp_path: Path) -> None:
    written = []
    for name in ("one", "other"):
        result = simulate(
            of_all_ranks(12, "all_reduce"), LOSSY, system(dimensions=3), model="packet", detail=EVERYTHING
        )
        write_run(result, tmp_path / name)
        written.append({path.name: path.read_bytes() for path in sorted((tmp_path / name).glob("*.arrow"))})
    assert written[0] == written[1] != {}
