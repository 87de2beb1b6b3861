"""`et-sim inspect --json`: every view as data. Not here: the same as text (`inspect`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.summary.activity import activity_data
from et_sim.views.summary.bandwidth import bandwidth_data
from et_sim.views.summary.exposure import without_kernel
from et_sim.views.summary.flows import flows_of
from et_sim.views.summary.groups import group_totals
from et_sim.views.summary.idle import idle_data
from et_sim.views.summary.links import link_uses
from et_sim.views.summary.memory import memory_peaks
from et_sim.views.summary.operations import operations
from et_sim.views.summary.pauses import pauses_data
from et_sim.views.summary.phase_totals import phase_totals
from et_sim.views.summary.queues import queues_data
from et_sim.views.summary.rank_times import rank_entries
from et_sim.views.summary.roofline import roofline_data
from et_sim.views.summary.spread import spread_data
from et_sim.views.summary.topology import topology_data
from et_sim.views.summary.waits import waits_of


def _ranks(run: RunDirectory, part: Selection) -> Any:
    return list(part.cut(rank_entries(run, part)))


def _operations(run: RunDirectory, part: Selection) -> Any:
    alone = without_kernel(run, part)
    return [
        {**one.as_dict(), "without_kernel_ns": alone[one.kind, one.name, one.group]}
        for one in part.cut(operations(run, part))
    ]


def _waits(run: RunDirectory, part: Selection) -> Any:
    return waits_of(run, part).as_dict(part.top)


def _groups(run: RunDirectory, part: Selection) -> Any:
    return [one.as_dict() for one in part.cut(group_totals(run, part))]


def _phases(run: RunDirectory, part: Selection) -> Any:
    found = phase_totals(run, part)
    return found and [one.as_dict() for one in found]


def _links(run: RunDirectory, part: Selection) -> Any:
    found = link_uses(run, part)
    return None if found is None else [one.as_dict() for one in part.cut(found)]


def _flows(run: RunDirectory, part: Selection) -> Any:
    found = flows_of(run, part)
    return None if found is None else found.as_dicts(part.top)


def _memory(run: RunDirectory, part: Selection) -> Any:
    found = memory_peaks(run, part)
    return None if found is None else [one.as_dict() for one in part.cut(found)]


def _schedule(run: RunDirectory, _: Selection) -> Any:
    from et_sim.views.schedule.schedule import schedule_of
    from et_sim.views.schedule.text import schedule_data

    found = schedule_of(run)
    return None if found is None else schedule_data(found)


def _layers(run: RunDirectory, _: Selection) -> Any:
    from et_sim.views.summary.layers import Layers

    return Layers(run).as_dict()


def _critical_path(run: RunDirectory, part: Selection) -> Any:
    from et_sim.views.critical.text import critical_path_data

    return critical_path_data(run.path, part.top)


def _stalls(run: RunDirectory, _: Selection) -> Any:
    return run.stall


def _notices(run: RunDirectory, _: Selection) -> Any:
    return {name: run.summary[name] for name in ("warnings", "defaults")}


DATA: Mapping[str, Callable[[RunDirectory, Selection], Any]] = MappingProxyType(
    {
        "ranks": _ranks,
        "ops": _operations,
        "activity": activity_data,
        "waits": _waits,
        "bandwidth": bandwidth_data,
        "spread": spread_data,
        "idle": idle_data,
        "groups": _groups,
        "schedule": _schedule,
        "layers": _layers,
        "phases": _phases,
        "topology": topology_data,
        "links": _links,
        "critical-path": _critical_path,
        "queues": queues_data,
        "pauses": pauses_data,
        "flows": _flows,
        "roofline": roofline_data,
        "memory": _memory,
        "stalls": _stalls,
        "notices": _notices,
    }
)
