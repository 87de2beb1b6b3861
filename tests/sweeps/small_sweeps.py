"""Small sweeps for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machines import RING_4, algorithms

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "preferred-dataset-splits": 1,
    "active-chunks-per-dimension": 1,
    "collective-optimization": "localBWAware",
    **algorithms("ring"),
}
WORKLOAD: dict[str, Any] = {"make": "all_reduce", "ranks": 4, "bytes": 65536}
AXES: dict[str, Any] = {
    "bandwidth": {"field": "network.bandwidth[0]", "values": [25, 50, 100]},
    "splits": {"field": "system.preferred-dataset-splits", "values": [1, 2, 4]},
}
TEXT = """\
base:
  workload: {make: all_reduce, ranks: 4, bytes: 64KiB}
  system: system.json
  network: network.yml
axes:
  bandwidth: {field: "network.bandwidth[0]", values: [25, 50, 100]}
  splits: {field: system.preferred-dataset-splits, values: [1, 2, 4]}
"""


def spec(**changes: Any) -> dict[str, Any]:
    """Return nine points of an all-reduce."""
    base = {"workload": WORKLOAD, "system": SYSTEM, "network": RING_4}
    return {"base": base, "axes": AXES, **changes}


def write(folder: Path, text: str = TEXT) -> Path:
    """Write the same as files, and return the sweep's path."""
    import json

    (folder / "system.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    (folder / "network.yml").write_text(json.dumps(RING_4), encoding="utf-8")
    path = folder / "rings.yml"
    path.write_text(text, encoding="utf-8")
    return path


def table_of(folder: Path) -> bytes:
    """Return the table of points that a sweep wrote."""
    return (folder / "sweep.arrow").read_bytes()
