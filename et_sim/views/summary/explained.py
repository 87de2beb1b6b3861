"""How much of a run's longest path is explained, in a sentence."""

from __future__ import annotations

from et_sim.units import format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.text import share, shortened

WORDS = {
    "communication": "communication",
    "kernels": "kernels",
    "copies": "copies",
    "operators": "operators",
    "launches": "launches",
    "other": "late starts or remote memory",
}
LANES_SHOWN = 2


def explained_text(run: RunDirectory) -> str:
    """What the longest path consists of, and whose the gaps are that no machine changes."""
    found = run.summary["explained"]
    if found is None or not found["path_ns"]:
        return ""
    whole, gaps = found["path_ns"], found["gaps_ns"]
    spent = sorted(
        ((ns, kind) for kind, ns in found["spent_ns"].items() if kind != "gaps" and 100 * ns >= whole),
        reverse=True,
    )
    known = ", ".join(f"{WORDS.get(kind, kind)} {share(ns, whole)}" for ns, kind in spent)
    text = f"{share(whole - gaps, whole)} of the longest path{f' ({known})' if known else ''}"
    if not gaps:
        return text
    lanes = [
        f"{format_ns(one['ns'])} {shortened(one['name'], 40)} of rank {shortened(one['ranks'], 16)}"
        for one in found["gaps"][:LANES_SHOWN]
    ]
    more = ", …" if len(found["gaps"]) > LANES_SHOWN else ""
    return f"{text}; fixed gaps {share(gaps, whole)}: {', '.join(lanes)}{more}"
