"""XPlane profiles of JAX and TensorFlow, one file per host: each device with events is a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from converters.recordings.format import RecordingFormat, RecordingTask
from converters.recordings.kineto_files import RankTimeline, convert_timelines
from et_sim.basics.units import plural

if TYPE_CHECKING:
    from converters.recordings.xplane.profile import Profile

# The first plane: its length, perhaps its number, and the beginning of its name.
_BEGIN = re.compile(
    rb"\n[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?"
    rb"\x12.(?:/host:|/device:|Task Environment)",
    re.DOTALL,
)


def _recognises(path: Path, begin: bytes) -> bool:  # noqa: ARG001
    return _BEGIN.match(begin) is not None


def _convert(task: RecordingTask) -> Iterator[str]:
    from converters.recordings.xplane.profile import device_events, read_profile

    profiles = [read_profile(path) for path in task.files]
    ranks = sum(len(profile.devices) for profile in profiles)
    devices = max(ranks, *(profile.world for profile in profiles))
    timelines: list[RankTimeline] = []
    for profile in profiles:
        for known in profile.devices:
            events = device_events(profile, known, devices)
            timelines.append(RankTimeline(len(timelines), profile.path, profile.begin_ns, events))
    yield from convert_timelines(timelines, task, devices)
    if not task.as_json:
        yield from (f"note: {note}" for note in _notes(profiles, ranks, devices))


def _notes(profiles: list[Profile], ranks: int, devices: int) -> Iterator[str]:
    """Yield what the profiles cannot show."""
    if ranks > 1:
        yield "ranks are numbered by file, then by device"
    if devices > ranks:
        yield f"the programs are for {plural(devices, 'device')}; recorded: {ranks}"
    if not any(profile.programs for profile in profiles):
        yield "the programs (HLO) were not recorded: collectives have no groups and no sizes"
    yield "of the host, only the calls that launched kernels are taken"


FORMAT = RecordingFormat("XPlane profiles of JAX and TensorFlow", recognises=_recognises, convert=_convert)
