"""How long systolic arrays take to work out: `python benchmarks/systolic.py`.

1,000 random products with calculated bandwidth, as a command and as cycles alone; ResNet-50; and layers with
a given bandwidth whose times in SCALE-Sim 2.0.2 were measured on the same machine.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from et_sim.compute.systolic.layer import Dimensions, Layer
from et_sim.compute.systolic.report import Report, reports
from et_sim.machine.systolic import Array, Bandwidth, Dataflow

GOOGLE = Array(256, 256, 6144, 6144, 2048, Dataflow.WEIGHT)
SCALE = Array(32, 32, 64, 64, 64, Dataflow.OUTPUT)
CONFIG = """[architecture_presets]
ArrayHeight: 256
ArrayWidth: 256
IfmapSramSzkB: 6144
FilterSramSzkB: 6144
OfmapSramSzkB: 2048
Dataflow: ws
[run_presets]
InterfaceBandwidth: CALC
"""
# M, N, K on 16 x 16 with memories of so many KiB, words per cycle, dataflow; seconds of SCALE-Sim
LIMITED = (
    (100, 100, 100, 64, 50, "os", 0.35),
    (100, 100, 100, 1, 10, "ws", 0.53),
    (64, 64, 512, 2, 4, "ws", 1.8),
    (128, 64, 256, 1, 4, "is", 64.8),
)


def products() -> list[Layer]:
    """1,000 different ones."""
    numbers = random.Random(1)
    sizes = [[numbers.randint(1, 8192) for _ in range(3)] for _ in range(1000)]
    return [Layer.product(f"l{at}", *size) for at, size in enumerate(sizes)]


def resnet_50() -> list[Layer]:
    """Its convolutions, padded."""
    found = [Dimensions(230, 230, 7, 7, 3, 64, 2, 2)]
    stages = ((56, 64, 64, 256, 3, 1), (56, 256, 128, 512, 4, 2), (28, 512, 256, 1024, 6, 2))
    for size, entering, middle, leaving, blocks, stride in (*stages, (14, 1024, 512, 2048, 3, 2)):
        for block in range(blocks):
            channels, step = (leaving, 1) if block else (entering, stride)
            before, after = size // stride if block else size, size // stride
            found.append(Dimensions(before, before, 1, 1, channels, middle, step, step))
            found.append(Dimensions(after + 2, after + 2, 3, 3, middle, middle, 1, 1))
            found.append(Dimensions(after, after, 1, 1, middle, leaving, 1, 1))
            if not block:
                found.append(Dimensions(before, before, 1, 1, channels, leaving, step, step))
    return [Layer(f"l{at}", size) for at, size in enumerate(found)]


def seconds_of(layers: list[Layer], array: Array, has_traffic: bool = True) -> float:
    """How long the figures of layers take."""
    begin = time.perf_counter()
    for one in reports(layers, array):
        _ = one.access_row if has_traffic else one.compute_row
    return time.perf_counter() - begin


def command_seconds(layers: list[Layer]) -> float:
    """The same as a command that prints everything, the start of the process included."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"{one.name},{one.rows},{one.columns},{one.inner},\n" for one in layers]
        topology, config = Path(folder, "t.csv"), Path(folder, "c.cfg")
        topology.write_text("Layer,M,N,K,\n" + "".join(rows))
        config.write_text(CONFIG)
        program = Path(sys.executable).with_name("et-sim")
        command = [str(program), "systolic", str(topology), "--config", str(config)]
        begin = time.perf_counter()
        subprocess.run([*command, "--json"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    layers = products()
    for name, array in (("256 x 256 ws, 6 MiB", GOOGLE), ("32 x 32 os, 64 KiB", SCALE)):
        print(f"1,000 products, {name}: cycles {seconds_of(layers, array, False):.3f} s, ", end="")
        print(f"with traffic {seconds_of(layers, array):.3f} s")
        print(f"ResNet-50, {name}: cycles {seconds_of(resnet_50(), array, False):.3f} s, ", end="")
        print(f"with traffic {seconds_of(resnet_50(), array):.3f} s")
    print(f"et-sim systolic --json, 1,000 products, 256 x 256: {command_seconds(layers):.2f} s")
    for rows, columns, inner, kb, bandwidth, dataflow, theirs in LIMITED:
        array = Array(16, 16, kb, kb, kb, Dataflow(dataflow), Bandwidth.GIVEN, (bandwidth,))
        begin = time.perf_counter()
        found = Report(Layer.product("a", rows, columns, inner), array).access_row
        seconds = time.perf_counter() - begin
        name = f"{rows} x {columns} x {inner}, {dataflow}, {kb} KiB, {bandwidth} words"
        print(f"{name}: {1000 * seconds:.1f} ms, SCALE-Sim {theirs} s, {theirs / seconds:.0f} times", end="")
        print(f" ({found['DRAM IFMAP Reads']:,} reads)")


if __name__ == "__main__":
    main()
