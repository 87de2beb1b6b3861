"""Messages and links of golden cases agree with the other tables of their runs, folded or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import Case
from test_reference_1x import RUNS
from test_reference_2x import CASES
from traffic_checks import DETAIL, check_sent_by_layers, check_traffic, check_unfolded

import et_sim
from et_sim.api import run

# Some of them, which are many and alike; more of those on links.
CHOSEN = [case for number, case in enumerate(CASES) if number % (3 if case.model == "link" else 10) == 0]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_messages_and_links_add_up(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case.write_programs(tmp_path)
    monkeypatch.chdir(tmp_path)
    detail = f"{DETAIL},path" if case.model == "link" else DETAIL
    folded = run(case.workload(), **case.machine, model=case.model, detail=detail)
    check_traffic(folded)
    assert folded.finish_ns.tolist() == case.expected_finish()
    if folded.outcome.plan.is_folded:
        unfolded = run(case.workload(), **case.machine, model=case.model, detail=detail, fold=False)
        check_traffic(unfolded)
        check_unfolded(folded, unfolded)


@pytest.mark.parametrize("case", RUNS[::8], ids=lambda case: case["id"])
def test_messages_of_layer_files_add_up_to_what_1_0_says_was_sent(
    case: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "layers.txt").write_text(case["workload"])
    settings = case["system"] | case["args"]
    text = {key: "_".join(map(str, v)) if isinstance(v, list) else v for key, v in settings.items()}
    (tmp_path / "system.txt").write_text("".join(f"{key}: {value}\n" for key, value in text.items()))
    (tmp_path / "network.json").write_text(json.dumps(case["network"]))
    machine = {"system": tmp_path / "system.txt", "network": tmp_path / "network.json"}
    model = "link" if "topology" in case["network"] else "analytical"
    results = [
        et_sim.simulate(tmp_path / "layers.txt", **machine, model=model, fold=fold, detail=DETAIL)
        for fold in (True, False)
    ]
    for result in results:
        check_traffic(result)
        check_sent_by_layers(result)
        assert result.makespan_ns == case["expected"]["finish_ns"]
    check_unfolded(*results)
