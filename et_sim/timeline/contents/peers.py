"""Whom the ranks of actors send to and receive from: the columns of peers.arrow.

Ranks of one actor run one program but for whom it talks to. As a rule all of them talk to the rank at one
distance, and a node has one row. Not here: unfolded runs, in whose timeline every peer stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.plan.peers import Endpoints, find_endpoints
from et_sim.timeline.content import Content, Texts
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun
from et_sim.units import format_ranks

ALL = -1


def peers_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """peers.arrow; always all of them, of folded runs in which anything is sent."""
    workload, is_folded = run.workload, run.outcome.plan.is_folded
    endpoints = [
        find_endpoints(trace, workload.has_relative_peers(number), workload.ranks)
        for number, trace in enumerate(workload.templates if is_folded else ())
    ]
    if not any(len(one.rows) for one in endpoints):
        return None
    texts: dict[str, int] = {}
    blocks = list(_blocks(run, endpoints, texts))
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return Content(iter([{**columns, "ranks": Texts(columns["ranks"], tuple(texts))}]))


def _blocks(run: RecordedRun, endpoints: list[Endpoints], texts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Rows of each actor, in the order of its sends and receives; `texts` collects those of ranks."""
    template_of_rank, count = run.workload.template_of_rank, run.workload.ranks
    templates = run.outcome.plan.actors["template"].tolist()
    for actor, ranks in enumerate(run.measurement.ranks_of_actors()):
        own = endpoints[templates[actor]]
        if not len(own.rows):
            continue
        runs = template_of_rank[ranks]
        meanings = [_meanings(slot, ranks, runs, endpoints, count, texts) for slot in range(len(own.peers))]
        places = [place for place, slot in enumerate(own.slot.tolist()) for _ in meanings[slot]]
        pairs = np.array([pair for slot in own.slot.tolist() for pair in meanings[slot]], np.int64)
        ids = run.workload.templates[templates[actor]].node_id[own.rows]
        yield {
            "actor": np.full(len(pairs), actor, np.int32),
            "node": ids[places].astype(np.uint64),
            "ranks": pairs[:, 0],
            "distance": pairs[:, 1],
        }


def _meanings(
    slot: int, ranks: Any, runs: Any, endpoints: list[Endpoints], count: int, texts: dict[str, int]
) -> list[tuple[int, int]]:
    """(number of a text of ranks, or ALL; distance of whom a slot means to them), by the ranks' templates."""
    templates, of_rank = np.unique(runs, return_inverse=True)
    every = [endpoints[template] for template in templates.tolist()]
    peer = np.array([int(one.peers[slot]) for one in every])[of_rank.reshape(-1)]
    is_distance = np.array([one.relative for one in every])[of_rank.reshape(-1)]
    distance = np.where(is_distance, peer, peer - ranks) % count
    order = np.argsort(distance, kind="stable")
    parts = np.split(ranks[order], np.flatnonzero(np.diff(distance[order])) + 1)
    found = np.unique(distance).tolist()
    if len(found) == 1:
        return [(ALL, found[0])]
    named = (format_ranks(part) for part in parts)
    return [(texts.setdefault(text, len(texts)), one) for text, one in zip(named, found, strict=True)]
