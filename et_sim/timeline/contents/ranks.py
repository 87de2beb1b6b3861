"""Tables of ranks: the columns of actors, jobs, groups, peers, layers, memory and samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from et_sim.basics.group_names import shown_group
from et_sim.basics.unique import unique
from et_sim.basics.units import format_ranks, strided_ranks
from et_sim.memory import CLASSES
from et_sim.plan.channels import Endpoints, find_endpoints
from et_sim.plan.records import LoweredPlan
from et_sim.tables.collective_tables import PHASES_OF_LAYERS
from et_sim.tables.declaration import CAPACITY
from et_sim.timeline.content import Block, Nullable, TableContent, Texts, whole
from et_sim.timeline.measurement import EVENTS, MemorySource, events_of, until_next
from et_sim.timeline.recorded import RecordedRun

if TYPE_CHECKING:
    from et_sim.trace.group_rule import GroupRule

NONE = -1


def groups_content(run: RecordedRun) -> TableContent:
    """Return groups.arrow, which is never filtered."""
    return whole(_GroupRows(run.outcome.plan, run.workload.template_of_rank).columns())


class _Membership(Struct, frozen=True):
    """Members of a group, by one of the last three fields."""

    size: int
    stride: int = NONE
    listed: str | None = None
    rule: str | None = None


def _membership(members: tuple[int, ...] | GroupRule) -> _Membership:
    if isinstance(members, tuple):
        return _Membership(len(members), listed=strided_ranks(members))
    if isinstance(members.stride, int) and members.has_all:
        return _Membership(members.count, members.stride)
    return _Membership(members.count, rule=json.dumps(members.as_written()))


def _texts(texts: list[str | None], meant: Any) -> Texts:
    """Return the texts of the groups of rows; a group may have none."""
    given = [text for text in texts if text is not None]
    place = np.full(len(texts), NONE)
    place[[at for at, text in enumerate(texts) if text is not None]] = np.arange(len(given))
    return Texts(place[meant], tuple(given))


class _GroupRows:
    """Rows with the texts and groups that they refer to by number."""

    def __init__(self, plan: LoweredPlan, template_of_rank: Any) -> None:
        self._plan, self._template_of_rank = plan, template_of_rank
        self._template = plan.actors["template"]
        first = self._template[plan.actor_of_rank]
        self._is_mixed = np.zeros(len(self._template), np.bool_)  # ranks run several templates
        self._is_mixed[plan.actor_of_rank[first != template_of_rank]] = True
        every = (group for used in plan.used_groups for group in used)
        self._number = {group: number for number, group in enumerate(dict.fromkeys(every))}
        self._ranks: list[str] = []

    def columns(self) -> dict[str, Any]:
        """Return all columns, by actor and in the order in which its program uses the groups."""
        parts = [self._plain(), *self._mixed()]
        actor, usage, group, meant, ranks = np.concatenate(parts, axis=1)
        order = np.lexsort((np.arange(len(actor)), usage, actor))
        actor, group, meant, ranks = (column[order] for column in (actor, group, meant, ranks))
        known = tuple(self._number)
        names = tuple(shown_group(group.name) for group in known)
        who_of_groups = [_membership(group.members) for group in known]
        sizes, strides = (
            np.array([getattr(who, name) for who in who_of_groups], np.int64)[meant]
            for name in ("size", "stride")
        )
        return {
            "actor": actor.astype(np.int32),
            "group": Texts(group, names),
            "ranks": Texts(ranks, tuple(self._ranks)),
            "name": Texts(meant, names),
            "members": _texts([who.listed for who in who_of_groups], meant),
            "size": sizes,
            "stride": strides,
            "rule": _texts([who.rule for who in who_of_groups], meant),
        }

    def _plain(self) -> Any:
        """Return the rows of actors with one template: a group is the same for all ranks."""
        plain, used_groups = np.flatnonzero(~self._is_mixed), self._plan.used_groups
        numbers = np.array([self._number[group] for used in used_groups for group in used], np.int64)
        counts = np.array([*map(len, used_groups)], np.int64)
        count, first = (column[self._template[plain]] for column in (counts, np.cumsum(counts) - counts))
        actor = np.repeat(plain, count)
        usage = np.arange(len(actor)) - np.repeat(np.cumsum(count) - count, count)
        group = numbers[np.repeat(first, count) + usage]
        return np.stack((actor, usage, group, group, np.full(len(actor), NONE)))

    def _mixed(self) -> Iterator[Any]:
        """Yield the rows of the other actors, by the groups of the ranks' templates."""
        by_actor = np.argsort(self._plan.actor_of_rank, kind="stable")
        first = np.searchsorted(self._plan.actor_of_rank[by_actor], np.arange(len(self._template) + 1))
        for actor in np.flatnonzero(self._is_mixed).tolist():
            ranks = by_actor[first[actor] : first[actor + 1]]
            templates, of_rank = np.unique(self._template_of_rank[ranks], return_inverse=True)
            used = [self._plan.used_groups[template] for template in templates.tolist()]
            for usage, shown in enumerate(self._plan.used_groups[int(self._template[actor])]):
                meant = np.array([self._number[groups[usage]] for groups in used])
                groups, of_template = np.unique(meant, return_inverse=True)
                of_group = of_template.reshape(-1)[of_rank.reshape(-1)]
                order = np.argsort(of_group, kind="stable")
                parts = np.split(ranks[order], np.flatnonzero(np.diff(of_group[order])) + 1)
                for group, part in zip(groups.tolist(), parts, strict=True):
                    text = self._text(part) if len(groups) > 1 else NONE
                    yield np.array((actor, usage, self._number[shown], group, text), np.int64)[:, None]

    def _text(self, ranks: Any) -> int:
        self._ranks.append(format_ranks(ranks))
        return len(self._ranks) - 1


def layers_content(run: RecordedRun) -> TableContent | None:
    """Return layers.arrow; its metadata hold figures of the whole run."""
    if run.layers is None:
        return None
    layers = run.layers
    figures = {"compute": layers.compute_ns, "exposed": layers.exposed_ns, "total": layers.total_ns}
    columns: dict[str, Any] = {"layer": Texts(np.arange(len(layers.names)), layers.names)}
    for figure, values in figures.items():
        for number, phase in enumerate(PHASES_OF_LAYERS):
            columns[f"{phase.replace(' ', '_')}_{figure}_ns"] = values[:, number]
    return whole(columns, {"figures": layers.figures()})


def peers_content(run: RecordedRun) -> TableContent | None:
    """Return peers.arrow, which is never filtered, for folded runs with sends."""
    workload, is_folded = run.workload, run.outcome.plan.is_folded
    endpoints = [
        find_endpoints(trace, workload.has_relative_peers(number), workload.ranks)
        for number, trace in enumerate(workload.templates if is_folded else ())
    ]
    if not any(len(endpoint.rows) for endpoint in endpoints):
        return None
    texts: dict[str, int] = {}
    blocks = list(_blocks_of_peers(run, endpoints, texts))
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return whole({**columns, "ranks": Texts(columns["ranks"], tuple(texts))})


def _blocks_of_peers(
    run: RecordedRun, endpoints: list[Endpoints], texts: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each actor in the order of its sends and receives; `texts` collects those
    of ranks.
    """
    template_of_rank, count = run.workload.template_of_rank, run.workload.ranks
    templates = run.outcome.plan.actors["template"].tolist()
    for actor, ranks in enumerate(run.measurement.ranks_of_actors()):
        endpoints_here = endpoints[templates[actor]]
        if not len(endpoints_here.rows):
            continue
        runs = template_of_rank[ranks]
        meanings = [
            _peers_meant(slot, ranks, runs, endpoints, count, texts)
            for slot in range(len(endpoints_here.peers))
        ]
        places = [place for place, slot in enumerate(endpoints_here.slot.tolist()) for _ in meanings[slot]]
        pairs = np.array([pair for slot in endpoints_here.slot.tolist() for pair in meanings[slot]], np.int64)
        ids = run.workload.templates[templates[actor]].node_id[endpoints_here.rows]
        yield {
            "actor": np.full(len(pairs), actor, np.int32),
            "node": ids[places].astype(np.uint64),
            "ranks": pairs[:, 0],
            "distance": pairs[:, 1],
        }


def _peers_meant(
    slot: int, ranks: Any, runs: Any, endpoints: list[Endpoints], count: int, texts: dict[str, int]
) -> list[tuple[int, int]]:
    """Return (number of a text of ranks, or NONE; distance of the peer), by the ranks' templates."""
    templates, of_rank = np.unique(runs, return_inverse=True)
    every = [endpoints[template] for template in templates.tolist()]
    peer = np.array([int(endpoint.peers[slot]) for endpoint in every])[of_rank.reshape(-1)]
    is_distance = np.array([endpoint.relative for endpoint in every])[of_rank.reshape(-1)]
    distance = np.where(is_distance, peer, peer - ranks) % count
    order = np.argsort(distance, kind="stable")
    parts = np.split(ranks[order], np.flatnonzero(np.diff(distance[order])) + 1)
    distances = unique(distance).tolist()
    if len(distances) == 1:
        return [(NONE, distances[0])]
    named = (format_ranks(part) for part in parts)
    return [
        (texts.setdefault(text, len(texts)), single) for text, single in zip(named, distances, strict=True)
    ]


def memory_content(run: RecordedRun) -> TableContent | None:
    """Return memory.arrow; a window also has the last change before it, which holds the bytes in use then."""
    source = run.measurement.memory
    if source is None:
        return None
    there = {} if run.capacity_bytes is None else {CAPACITY: str(run.capacity_bytes)}
    return TableContent(_memory_blocks(run, source), there)


def _memory_blocks(run: RecordedRun, source: MemorySource) -> Iterator[Block]:
    ids = run.measurement.source.ids
    for changes in run.measurement.changes_of_memory():
        columns = {
            "actor": changes.owner,
            "time_ns": changes.time_ns,
            "event": Texts(events_of(changes), EVENTS),
            "tensor": Texts(changes.tensor, source.names),
            "class": Texts(source.classes[changes.tensor], CLASSES),
            "node": Nullable(ids[changes.node], changes.node < 0),
            "delta_bytes": changes.delta_bytes,
            "alive_bytes": changes.alive_bytes,
        }
        yield Block(columns, changes.owner, changes.time_ns, until_next(changes))


KINDS: dict[str, type] = {"ranks": np.int32, "slowdown": np.float64}
FIGURES = ("ranks", "seed", "start_ns", "finish_ns", "duration_ns", "alone_ns", "slowdown")


def jobs_content(run: RecordedRun) -> TableContent | None:
    """Return jobs.arrow, which is never filtered."""
    jobs: Sequence[Mapping[str, Any]] = run.manifest["jobs"]
    if not jobs:
        return None
    names, placed = (tuple(str(job[name]) for job in jobs) for name in ("name", "placed"))
    columns: dict[str, Any] = {name: _figures(name, [job[name] for job in jobs]) for name in FIGURES}
    columns |= {name: [str(job[name]) for job in jobs] for name in ("workload", "npus")}
    ways = tuple(dict.fromkeys(placed))
    columns["job"] = Texts(np.arange(len(jobs)), names)
    columns["placed"] = Texts(np.array([ways.index(way) for way in placed]), ways)
    return whole(columns)


def _figures(name: str, values: list[Any]) -> Any:
    """Return a column of figures; None becomes null."""
    is_null = np.array([value is None for value in values])
    known = [0 if value is None else value for value in values]
    return Nullable(np.array(known, KINDS.get(name, np.int64)), is_null)


def actors_content(run: RecordedRun) -> TableContent:
    """Return actors.arrow, the actors with their figures, which is never filtered."""
    measurement = run.measurement
    columns = {
        "actor": np.arange(measurement.source.actors, dtype=np.int32),
        "ranks": measurement.rank_texts(),
        "rank_count": measurement.ranks_per_actor,
    }
    return whole(columns | measurement.statistics.columns())


def samples_content(run: RecordedRun) -> TableContent | None:
    """Return samples.arrow."""
    if run.samples is None:
        return None
    columns = run.samples.columns()
    names = tuple(dict.fromkeys(columns["without"]))
    number = {name: at for at, name in enumerate(names)}
    codes = np.array([number[name] for name in columns["without"]], np.int32)
    return whole({**columns, "without": Texts(codes, names)})
