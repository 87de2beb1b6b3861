"""The forms of the engine that are ordered ahead are forms that deep tests need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import test_failures
import test_link_failures
import test_loggops
import test_packet_failures
import test_packet_htsim
import test_packet_model
import test_pytorch_paths
import test_reference_1x
from engines_ahead import DAYS, DEEP_FORMS, engine_call, forms_of, simulate
from machines import RING_2

from et_sim.compiled.signature import signature_of
from et_sim.compiled.store import code_path


def of_ns3(control: str) -> Callable[[Path], object]:
    """Return a run of the first case of ns-3 with a congestion control."""

    def run(folder: Path) -> object:
        cases = test_packet_model.golden()[1]
        case = next(case for case in cases if test_packet_model.control_of(case) == control)
        return test_packet_model.simulated(case, folder)

    return run


def recorded(folder: Path) -> object:
    """Run a recording."""
    workload = test_pytorch_paths.pair(test_pytorch_paths.RECORDINGS[0])
    return test_pytorch_paths.paths(workload, folder, system=test_pytorch_paths.SYSTEM, network=RING_2)


def of_1_0(detail: str) -> Callable[[Path], object]:
    """Return a run of 1.0 on the analytical model."""
    case = next(case for case in test_reference_1x.RUNS if "topology" not in case["network"])
    return lambda folder: test_reference_1x.simulate(case, folder, fold=False, detail=detail)


def on_links(folder: Path) -> object:
    """Run a case of 1.0 on links, with a record of causes."""
    case = next(case for case in test_reference_1x.RUNS if "topology" in case["network"])
    return test_reference_1x.simulate(case, folder, fold=True, detail="path")


RUNS: dict[str, Callable[[Path], object]] = {
    "path": recorded,
    "path on links": on_links,
    "1.0": of_1_0("nodes"),
    "path of 1.0": of_1_0("path"),
    "flow": lambda _: test_failures.figures(0),
    "packets": of_ns3("none"),
    **{name: of_ns3(name) for name in ("DCTCP", "TIMELY", "HPCC", "DCQCN")},
    "TCP": lambda _: test_packet_htsim.simulated(test_packet_htsim.CASES[0]),
    "LogGOPS": lambda _: test_loggops.makespan(test_loggops.incast(2, 8), test_loggops.TOOL),
    "failing links": lambda _: test_link_failures.outcome_of(0),
    "failures of packets": lambda _: test_packet_failures.outcome_of(0),
}


def code_of(runs: Callable[[], object]) -> Path:
    """Return the path of the machine code that a run needs."""
    engine, arguments = engine_call(runs)
    return code_path(engine.function, signature_of(arguments))


@pytest.mark.deep
@pytest.mark.parametrize("name", DEEP_FORMS)
def test_a_form_ordered_ahead_is_one_that_a_deep_test_needs(name: str, tmp_path: Path) -> None:
    assert code_of(lambda: simulate(**DEEP_FORMS[name])) == code_of(lambda: RUNS[name](tmp_path))


def test_forms_are_ordered_on_the_days_of_the_tests_that_need_them() -> None:
    marks = (
        test_packet_failures.test_random_failures_end_or_stall_with_their_cause_in_machine_code_too.pytestmark
    )
    (day,) = [mark.kwargs["day"] for mark in marks if mark.name == "in_turn"]
    controls = {name: of for name, of in test_packet_model.DAYS.items() if name != "DCQCN"}  # a default
    assert {**controls, "failures of packets": day} == DAYS
    assert {*forms_of(4), *forms_of(5)} == {*DEEP_FORMS}
    assert "HPCC" in forms_of(4)
    assert "HPCC" not in forms_of(5)
