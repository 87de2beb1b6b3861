"""Checks of messages.arrow and links.arrow: counts and sums follow from the other tables of the run."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from et_sim.engine.state.cause_tables import CauseKind
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.traffic_tables import BITS
from et_sim.machine.corrections import Correction
from et_sim.run.result import Result
from et_sim.timeline.contents.events import SENT_NAMES

DETAIL = "phases,messages,links"
REQUEST = SENT_NAMES.index("request")
COLLECTIVE, REQUEST = SENT_NAMES.index("collective"), SENT_NAMES.index("request")
# Columns that do not name actors.
ABOUT_MESSAGES = ("node", "kind", "chunk", "phase", "step", "dimension", "bytes", "ready_ns", "sent_ns")
ABOUT_MESSAGES += ("start_ns", "left_ns", "arrived_ns", "link_wait_ns")
WHICH = ("actor", "dimension", "link")  # of links.arrow, as the others
SUMS = ("busy_ns", "bytes", "messages", "wait_ns")
MAXIMA = ("longest_wait_ns", "most_waiting")


def columns(result: Result, name: str) -> dict[str, Any]:
    """Return a table as numpy columns; null is -1, and words of `kind` are numbers."""
    table = result.table(name).unify_dictionaries().combine_chunks()
    results = {}
    for field in table.schema:
        column = table[field.name].combine_chunks()
        if field.name == "kind" and name == "messages":
            names = np.array([SENT_NAMES.index(word) for word in column.dictionary.to_pylist()])
            results[field.name] = names[column.indices.to_numpy()] if len(column) else np.zeros(0, np.int8)
        elif "dictionary" in str(field.type):
            results[field.name] = np.array(column.to_pylist(), object)
        elif str(field.type).startswith("int"):
            results[field.name] = column.fill_null(-1).to_numpy()
        elif not str(field.type).startswith(("double", "bool")):
            results[field.name] = column.to_numpy(zero_copy_only=False)
    return results


def check_traffic(result: Result) -> None:
    """Check the rules of every run."""
    sent, links = columns(result, "messages"), columns(result, "links")
    ranks = np.bincount(result.outcome.plan.actor_of_rank)
    on_links = result.outcome.has_contention
    _check_times(sent, on_links=on_links)
    is_data = sent["kind"] != REQUEST
    if result.is_complete:
        assert ranks[sent["actor"]][is_data].sum() == result.outcome.messages
        _check_phases(result, sent, ranks)
    if on_links:
        waited = (ranks[links["actor"]] * links["wait_ns"]).sum()
        lost = ranks.sum() * len(sent["actor"]) if result.outcome.run.traffic.grid[BITS] else 0  # fractions
        assert abs(waited - (ranks[sent["actor"]] * sent["link_wait_ns"]).sum()) <= lost
        assert (links["busy_ns"] <= links["end_ns"] - links["start_ns"]).all()
    elif Correction.WHOLE_PATH not in result.outcome.plan.corrections:
        _check_sums(sent, links)
    if result.causal_events is not None and on_links:
        _check_slices(result, links)


def _check_times(sent: dict[str, Any], *, on_links: bool) -> None:
    names = ("ready_ns", "sent_ns", "start_ns", "left_ns", "arrived_ns")
    for earlier, later in pairwise(names):
        assert (sent[earlier] <= sent[later]).all()
    assert (sent["ready_ns"] >= 0).all()
    assert (sent["link_wait_ns"] >= sent["start_ns"] - sent["sent_ns"]).all() or not on_links
    assert on_links or (sent["start_ns"] == sent["sent_ns"]).all()


def _check_phases(result: Result, sent: dict[str, Any], ranks: Any) -> None:
    """Check that each phase of a receiver has as many messages as it counts, all before its end."""
    timeline, phases = columns(result, "timeline"), columns(result, "phases")
    pairs = zip(timeline["actor"].tolist(), timeline["node"].tolist(), strict=True)
    sequence = dict(zip(pairs, timeline["sequence"].tolist(), strict=True))

    def keys(actor: Any, table: dict[str, Any], owner: Any) -> list[tuple[int, ...]]:
        rows = zip(
            *(c.tolist() for c in (actor, table["node"], table["chunk"], table["phase"], owner)), strict=True
        )
        return [(who, sequence[of, node] + chunk, phase) for who, node, chunk, phase, of in rows]

    is_step = sent["kind"] == COLLECTIVE
    of_step = {name: column[is_step] for name, column in sent.items()}
    counted: Counter[tuple[int, ...]] = Counter()
    latest: Counter[tuple[int, ...]] = Counter()
    for key, actor, arrived in zip(
        keys(of_step["peer"], of_step, of_step["actor"]),
        of_step["actor"].tolist(),
        of_step["arrived_ns"].tolist(),
        strict=True,
    ):
        counted[key] += int(ranks[actor])
        latest[key] = max(latest[key], arrived)
    expected: Counter[tuple[int, ...]] = Counter()
    ended: Counter[tuple[int, ...]] = Counter()
    for key, actor, messages, end in zip(
        keys(phases["actor"], phases, phases["actor"]),
        phases["actor"].tolist(),
        phases["messages"].tolist(),
        phases["end_ns"].tolist(),
        strict=True,
    ):
        expected[key] += int(ranks[actor]) * messages
        ended[key] = max(ended[key], end)
    assert counted == +expected
    assert all(arrived <= ended[key] for key, arrived in latest.items())


def _check_sums(sent: dict[str, Any], links: dict[str, Any]) -> None:
    """Check, for runs without links, that an actor's traffic along a dimension is that of its messages."""
    of_messages = {**sent, "busy_ns": sent["left_ns"] - sent["start_ns"], "messages": sent["bytes"] * 0 + 1}
    totals = []
    for table in (of_messages, links):
        counts: Counter[tuple[int, int, str]] = Counter()
        for name in ("bytes", "busy_ns", "messages"):
            for actor, dimension, value in zip(
                *(table[column].tolist() for column in ("actor", "dimension", name)), strict=True
            ):
                counts[actor, dimension, name] += value if dimension >= 0 else 0
        totals.append(+counts)
    assert totals[0] == totals[1]


def _check_slices(result: Result, links: dict[str, Any]) -> None:
    """Check every slice of every link against the record of causes."""
    resources = result.outcome.resources
    assert result.causal_events is not None
    assert resources is not None
    causal_events = np.concatenate(list(result.causal_events.blocks()))
    serial = causal_events[
        (causal_events["kind"] == CauseKind.SERIALISATION) & (causal_events["resource"] >= 0)
    ]
    width = _width(links)
    expected: Counter[tuple[Any, ...]] = Counter()
    for place, start, end in zip(
        *(serial[c].tolist() for c in ("resource", "start_ns", "end_ns")), strict=True
    ):
        link = _link_at(resources, place)
        expected[*link, start // width, "messages"] += 1
        for number in range(start // width, -(-end // width)):
            in_slice = min(end, (number + 1) * width) - max(start, number * width)
            expected[*link, number, "busy_ns"] += in_slice
    counts: Counter[tuple[Any, ...]] = Counter()
    for name in ("messages", "busy_ns"):
        for *link, start, value in zip(
            *(links[column].tolist() for column in ("actor", "dimension", "link", "start_ns", name)),
            strict=True,
        ):
            counts[*link, start // width, name] += value
    assert +counts == +expected


def _link_at(resources: ResourceTable, place: int) -> tuple[int, int, str]:
    """Return (actor, dimension, name) of a link by its number in the record of causes."""
    port = resources.port_names[resources.port[place]]
    return int(resources.actor[place]), int(resources.dimension[place]), port


def check_sent_by_layers(result: Result) -> None:
    """Check that the bytes sent by rank 0 in a layer file's run are the sum of its messages."""
    assert result.layers is not None
    sent = columns(result, "messages")
    own = (sent["actor"] == result.outcome.plan.actor_of_rank[0]) & np.isin(
        sent["kind"], (COLLECTIVE, REQUEST)
    )
    figures = json.loads(result.layers.figures())["sent_bytes"]
    by_dimension = np.bincount(sent["dimension"][own], sent["bytes"][own], minlength=len(figures))
    assert by_dimension.astype(np.int64).tolist() == figures


def check_unfolded(folded: Result, unfolded: Result) -> None:
    """Check that every rank sends, and its links carry, the same as its actor.

    The links may be other ones: ranks that exchange messages in pairs use opposite ones.
    """
    actor_of = folded.outcome.plan.actor_of_rank
    few, every = columns(folded, "messages"), columns(unfolded, "messages")
    by_actor = _rows_by_actor(few, (*ABOUT_MESSAGES, "peer"))
    by_rank = _rows_by_actor({**every, "peer": actor_of[every["peer"]]}, (*ABOUT_MESSAGES, "peer"))
    for rank, actor in enumerate(actor_of.tolist()):
        assert sorted(by_rank.get(rank, [])) == sorted(by_actor.get(actor, [])), rank
    tables = [columns(run, "links") for run in (folded, unfolded)]
    width = max(_width(table) for table in tables)  # few links have narrower slices than many
    links_by_actor, links_by_rank = (_links_by_actor(table, width) for table in tables)
    for rank, actor in enumerate(actor_of.tolist()):
        assert links_by_rank.get(rank) == links_by_actor.get(actor), rank


def _rows_by_actor(table: dict[str, Any], names: tuple[str, ...]) -> dict[int, list[Any]]:
    results: dict[int, list[Any]] = {}
    for actor, *row in zip(table["actor"].tolist(), *(table[name].tolist() for name in names), strict=True):
        results.setdefault(actor, []).append(tuple(row))
    return results


def _width(links: dict[str, Any]) -> int:
    """Return the width of a slice: a power of two, though the last slice may end with the run."""
    longest = int((links["end_ns"] - links["start_ns"]).max(initial=1))
    return 1 << (longest - 1).bit_length()


def _links_by_actor(table: dict[str, Any], width: int) -> dict[int, list[Any]]:
    """Return the figures of each actor's links by slice, without the names of the links."""
    results: dict[int, dict[tuple[str, int], dict[int, list[int]]]] = {}
    for actor, rows in _rows_by_actor(table, ("link", "dimension", "start_ns", *SUMS, *MAXIMA)).items():
        for name, dimension, start, *figures in rows:
            slices = results.setdefault(actor, {}).setdefault((name, dimension), {})
            sums = slices.setdefault(start // width, [0] * len(figures))
            for at, figure in enumerate(figures):
                sums[at] = sums[at] + figure if at < len(SUMS) else max(sums[at], figure)
    return {
        actor: sorted((dimension, sorted(slices.items())) for (_, dimension), slices in links.items())
        for actor, links in results.items()
    }
