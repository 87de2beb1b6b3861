"""The cost of computing the times of systolic arrays: `python benchmarks/systolic.py`.

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

from et_sim.compute.systolic.layer import Dimensions, SystolicLayer
from et_sim.compute.systolic.model import reports
from et_sim.machine.systolic import Array, Dataflow, DramBandwidth

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
# On 16 x 16: M, N, K or a convolution's eight numbers, KiB of each memory, words per cycle, dataflow;
# seconds of SCALE-Sim 2.0.2, negative where it was stopped after so many.
LIMITED: tuple[tuple[tuple[int, ...], int, int, str, float], ...] = (
    ((100, 100, 100), 1, 4, "os", 1.09),
    ((100, 100, 100), 1, 4, "ws", 0.54),
    ((100, 100, 100), 1, 4, "is", 0.53),
    ((100, 100, 100), 8, 50, "ws", 0.35),
    ((100, 100, 100), 64, 50, "os", 0.29),
    ((64, 64, 512), 1, 4, "os", 0.79),
    ((64, 64, 512), 1, 4, "ws", -15.0),
    ((64, 64, 512), 1, 4, "is", -15.0),
    ((64, 64, 512), 8, 50, "is", 1.25),
    ((128, 64, 256), 1, 4, "os", 1.72),
    ((128, 64, 256), 1, 50, "ws", 2.30),
    ((128, 64, 256), 1, 4, "is", -15.0),
    ((128, 64, 256), 8, 4, "os", 1.56),
    ((20, 20, 3, 3, 16, 32, 1, 1), 1, 10, "os", 6.61),
    ((20, 20, 3, 3, 16, 32, 1, 1), 1, 10, "ws", 0.98),
    ((20, 20, 3, 3, 16, 32, 1, 1), 1, 10, "is", -25.0),
    ((30, 30, 3, 3, 8, 16, 1, 1), 4, 10, "ws", 0.70),
)
LARGE = SystolicLayer.product("8192 x 8192 x 8192", 8192, 8192, 8192)
LEAST_RATIO = 20


def products() -> list[SystolicLayer]:
    """Return 1,000 different layers."""
    numbers = random.Random(1)
    sizes = [[numbers.randint(1, 8192) for _ in range(3)] for _ in range(1000)]
    return [SystolicLayer.product(f"l{at}", *size) for at, size in enumerate(sizes)]


def resnet_50() -> list[SystolicLayer]:
    """Return its convolutions, padded."""
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
    return [SystolicLayer(f"l{at}", size) for at, size in enumerate(found)]


def seconds_of(layers: list[SystolicLayer], array: Array, has_traffic: bool = True) -> float:
    """Return the processor time of computing the figures of layers."""
    begin = time.process_time()
    for report in reports(layers, array):
        _ = report.access_row if has_traffic else report.compute_row
    return time.process_time() - begin


def command_seconds(layers: list[SystolicLayer]) -> float:
    """Return the time of the command that prints all figures, with the start of the process."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"{layer.name},{layer.rows},{layer.columns},{layer.inner},\n" for layer in layers]
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
    ratios = [limited_row(*row) for row in LIMITED]
    print(f"the least is {min(ratios):.0f} times, {LEAST_RATIO} are wanted")
    for side, kb in ((32, 64), (128, 512)):
        for dataflow in Dataflow:
            array = Array(side, side, kb, kb, kb, dataflow, DramBandwidth.GIVEN, (10,))
            for name, layers in ((LARGE.name, [LARGE]), ("ResNet-50", resnet_50())):
                seconds = seconds_of(layers, array)
                print(f"{name}, {side} x {side} {dataflow}, {kb} KiB, 10 words: {seconds:.2f} s")


def limited_row(sizes: tuple[int, ...], kb: int, bandwidth: int, dataflow: str, theirs: float) -> float:
    """Print how long a layer takes, the best of three; how many times longer SCALE-Sim takes."""
    array = Array(16, 16, kb, kb, kb, Dataflow(dataflow), DramBandwidth.GIVEN, (bandwidth,))
    layer = SystolicLayer.product("a", *sizes) if len(sizes) == 3 else SystolicLayer("a", Dimensions(*sizes))
    seconds = min(seconds_of([layer], array) for _ in range(3))
    name = f"{' x '.join(map(str, sizes))}, {dataflow}, {kb} KiB, {bandwidth} words"
    at_least = "more than " if theirs < 0 else ""
    ratio = abs(theirs) / seconds
    print(
        f"{name}: {1000 * seconds:.1f} ms, SCALE-Sim {at_least}{abs(theirs)} s, {at_least}{ratio:,.0f} times"
    )
    return ratio


if __name__ == "__main__":
    main()
