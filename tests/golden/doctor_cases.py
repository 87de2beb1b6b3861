"""Make the cases that `et-sim doctor` runs out of the golden ones.

python tests/golden/doctor_cases.py et_sim/doctor/cases
"""

from __future__ import annotations

import base64
import json
import lzma
import math
import sys
from pathlib import Path
from typing import Any

from cases import Case, all_cases

from et_sim.basics.units import format_ranks

ORIGIN = "golden case {} of ASTRA-sim {}: what its public binary printed for this input"
# Name of the file -> the golden case, and the feature that it covers.
CHOSEN = {
    "1-folding": ("collnd-0007", "16 ranks as one actor, a collective in two dimensions"),
    "2-link-model": ("coll1d-0113", "messages that queue for links"),
    "3-point-to-point": ("p2p-0032", "sends and receives"),
    "4-groups": ("groups-0073", "a collective of some of the ranks"),
    "5-layer-file": ("tiny_MICRO_torus2d_p1_LIFO", "a layer file of ASTRA-sim 1.0"),
}
ASTRA_1 = Path(__file__).parent / "data" / "astra_1.jsonl.xz"


def doctor_cases() -> dict[str, dict[str, Any]]:
    """Return the content of every file, by its name."""
    of_2x = {case.name: case for case in all_cases()}
    lines = lzma.decompress(ASTRA_1.read_bytes()).splitlines()
    of_1_0 = {case["id"]: case for case in map(json.loads, lines)}
    results = {}
    for name, (golden, covers) in CHOSEN.items():
        content = _of_2x(of_2x[golden]) if golden in of_2x else _of_1_0(of_1_0[golden])
        results[f"{name}.json"] = {"name": name[2:], "covers": covers, **content}
    return results


def _of_2x(case: Case) -> dict[str, Any]:
    ranks_of: dict[bytes, list[int]] = {}
    for rank, encoded in case.encoded_traces():
        ranks_of.setdefault(encoded, []).append(rank)
    traces = {format_ranks(ranks): base64.b64encode(encoded).decode() for encoded, ranks in ranks_of.items()}
    machine = {
        "system": case.system,
        "network": case.content["network"],
        "groups": case.content["comm_groups"],
    }
    return {
        "origin": ORIGIN.format(case.name, "2.x"),
        "model": case.model,
        "finish_ns": case.expected_finish(),
        **{part: content for part, content in machine.items() if content is not None},
        "workload": traces,
    }


def _of_1_0(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "origin": ORIGIN.format(case["id"], "1.0"),
        "model": "link" if "topology" in case["network"] else "analytical",
        "finish_ns": [case["expected"]["finish_ns"]] * math.prod(case["network"]["units-count"]),
        "system": {"profile": "astra-1.0"} | case["system"] | case["args"],
        "network": case["network"],
        "workload": case["workload"],
    }


if __name__ == "__main__":
    for file, content in doctor_cases().items():
        Path(sys.argv[1], file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
