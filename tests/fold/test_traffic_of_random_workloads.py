"""Messages and links of random workloads agree with the other tables, and folding does not change them."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from test_fold import workloads
from traffic_checks import DETAIL, check_traffic, check_unfolded

from et_sim.api import run
from et_sim.trace import Workload


@given(workloads())
@settings(suppress_health_check=list(HealthCheck))
def test_messages_and_links_of_random_workloads_add_up(drawn: tuple[Workload, dict[str, Any]]) -> None:
    workload, machine = drawn
    detail = f"{DETAIL},path" if machine["model"] == "link" else DETAIL
    folded, unfolded = (run(workload, **machine, fold=fold, detail=detail) for fold in (True, False))
    for result in (folded, unfolded):
        check_traffic(result)
    check_unfolded(folded, unfolded)
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
