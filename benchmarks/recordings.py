"""Read large recordings of PyTorch into columns: megabytes per second on one core, and peak memory.

    python benchmarks/recordings.py [--megabytes 500] [--folder FOLDER]

The files are real recordings from tests/converters/pytorch_traces, repeated with shifted times and ids
until they have the given size, one element per line. Each is read by a process of its own, so that the
peak is that of reading alone (Python and its libraries included). For comparison the same file goes
through `json.load`, which is what a reader built on the standard library does first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).resolve().parents[1] / "tests" / "converters" / "pytorch_traces"
CASES = (
    ("timeline, DDP on A100", "device_only/nccl_ddp.json.gz"),
    ("timeline, Megatron on A100", "megatron_tp8/kineto_0.json.gz"),
    ("timeline, with Python functions", "device_only/b200_eager.json.gz"),
    ("execution trace, schema 1.0.1", "megatron_tp8/et_0.json.gz"),
    ("execution trace, schema 1.1.1", "gloo_ddp_2r/et_0.json.gz"),
)
_ROOT = "[pytorch|profiler|execution_"
_MB = 1_000_000


def repeat(recording: Path, target: Path, size_bytes: int, least: int = 1) -> int:
    """Write a recording so many times that the file has that size, but `least` times at least; gives the
    number of copies."""
    whole = json.loads(gzip.decompress(recording.read_bytes()))
    key = "nodes" if "nodes" in whole else "traceEvents"
    elements, shift = (_nodes if key == "nodes" else _events)(whole[key])
    head = json.dumps({name: value for name, value in whole.items() if name != key})[:-1]
    copies = 0
    with target.open("w") as file:
        file.write(f'{head}, "{key}": [\n')
        file.write(",\n".join(map(json.dumps, whole[key])))
        while (copies := copies + 1) < least or file.tell() < size_bytes:
            shift(elements)
            file.write(",\n" + ",\n".join(map(json.dumps, elements)))
        file.write("\n]}\n")
    return copies


Shift = Callable[[list[dict[str, Any]]], None]


def _events(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Shift]:
    """Return the events of a copy, and the changes that make the next copy."""
    timed = [event for event in events if event["ph"] in "Xsf"]
    span = 1 + int(max(event["ts"] for event in timed) - min(event["ts"] for event in timed))
    ids = ("correlation", "External id", "Record function id", "wait_on_cuda_event_record_corr_id")
    distance = _distance(max(event.get("args", {}).get(name, 0) for event in timed for name in ids))

    def shift(copied: list[dict[str, Any]]) -> None:
        for event in copied:
            event["ts"] = round(event["ts"] + span, 3)
            own = event.get("args", event)
            for name in (*ids, "id"):
                if own.get(name, 0) > 0:
                    own[name] += distance

    return timed, shift


def _nodes(nodes: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Shift]:
    """Return the nodes of a copy (without process and threads), and the changes that make the next copy."""
    roots = {node["id"] for node in nodes if node["name"].startswith(_ROOT)}
    others = [node for node in nodes if node["id"] not in roots]
    distance = _distance(max(node["id"] for node in nodes))
    ids = ("id", "parent", "ctrl_deps", "rf_id", "fw_parent")

    def shift(copied: list[dict[str, Any]]) -> None:
        for node in copied:
            for name in ids:
                if node.get(name, 0) > 0 and (name == "rf_id" or node[name] not in roots):
                    node[name] += distance
            for attribute in node.get("attrs", ()):
                if attribute["name"] in ids and attribute["value"] > 0:
                    attribute["value"] += distance

    return others, shift


def _distance(largest: int) -> int:
    """Return the distance of ids between copies, usually the same for both recordings of a rank."""
    return max(_MB, int(10 ** len(str(largest))))


def read_here(path: Path, how: str) -> dict[str, Any]:
    """Read a file in this process."""
    start = time.process_time()
    if how == "json":
        with path.open("rb") as file:
            whole = json.load(file)
        rows = len(whole["nodes"] if "nodes" in whole else whole["traceEvents"])
    else:
        from converters.pytorch.reading import identify, read_device, read_host

        rows = len(read_host(path) if identify(path).kind == "host" else read_device(path))
    return {"seconds": time.process_time() - start, "rows": rows, "peak_mib": _peak_mib()}


def read_elsewhere(path: Path, how: str) -> dict[str, Any]:
    """Read a file in a new process."""
    command = [sys.executable, __file__, "--read", str(path), "--how", how]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _peak_mib() -> float:
    """Return the peak memory of this program; getrusage would give at least its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="where the large files go, one at a time")
    parser.add_argument("--json", type=int, default=100, help="megabytes that json.load has to read")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--how", default="columns", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read_here(options.read, options.how)))
        return
    print("| recording | MB | kept rows | MB/s | peak | `json.load` alone | its peak |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        large = Path(folder) / "recording.json"
        for name, recording in CASES:
            repeat(RECORDINGS / recording, large, options.megabytes * _MB)
            size, ours = large.stat().st_size / _MB, read_elsewhere(large, "columns")
            shown = f"| {name} | {size:,.0f} | {ours['rows']:,} | {size / ours['seconds']:.0f} |"
            repeat(RECORDINGS / recording, large, min(options.megabytes, options.json) * _MB)
            size, plain = large.stat().st_size / _MB, read_elsewhere(large, "json")
            shown += f" {ours['peak_mib']:.0f} MiB | {size / plain['seconds']:.0f} MB/s |"
            print(f"{shown} {plain['peak_mib']:,.0f} MiB for {size:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
