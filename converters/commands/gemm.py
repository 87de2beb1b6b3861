"""`et-convert gemm`: a list of matrix products (CSV) to a layer file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from converters.commands import JsonReport
from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.files import in_shell

if TYPE_CHECKING:
    from converters.layers.gemm import ProductSharing, Timer
    from et_sim.layerfile import LayerFile
    from et_sim.layerfile.layer_file import LayerPhase

_PEAK, _BANDWIDTH = 312.0, 2039.0  # of an A100 with 80 GB: 16-bit TFLOPS, GB/s


class Options(Command):
    """Share the matrix products of a model between NPUs, time what each computes, and write the layer file.
    The list has the columns Layer,m,n,k and perhaps strategy; with --images, it is SCALE-Sim's list of
    convolutions."""

    input: Annotated[Path, "the products; may be gzipped", "MODEL.csv"]
    output: Annotated[Path, "the layer file", "FILE", Option("-o --output")]
    ranks: Annotated[int, "NPUs that share the work", Option()]
    packages: Annotated[int, "packages of the NPUs"] = 1
    images: Annotated[
        int | None, "the list has convolutions, in SCALE-Sim's columns, of N images in all", "N"
    ] = None
    strategy: Annotated[str, "of products whose line names none, such as MODEL"] = "DATA"
    value_bytes: Annotated[int, "bytes of a value"] = 2
    update: Annotated[int, "ns after each collective", "NS"] = 100
    last_bottom_layer: Annotated[str, "with EMBEDDING: the bottom MLP's last layer", "NAME"] = ""
    compute: Annotated[str, "model for the times of products", Option(choices=("roofline", "systolic"))] = (
        "roofline"
    )
    config: Annotated[Path | None, "with systolic: the array, a configuration of SCALE-Sim", "CFG"] = None
    clock_ghz: Annotated[float | None, "with systolic: cycles per nanosecond (default: 1)"] = None
    tflops: Annotated[
        float | None, f"with roofline: peak of an NPU, 10^12 operations/s (default: {_PEAK:g})"
    ] = None
    memory_gbps: Annotated[
        float | None, f"with roofline: memory bandwidth of an NPU, 10^9 bytes/s (default: {_BANDWIDTH:g})"
    ] = None
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Read the products, divide them, time them, write the layer file, and report."""
    from converters.files import refuse_overwriting
    from converters.layers.gemm import STRATEGIES, ProductSharing, layers_of, rounded_up
    from converters.layers.products import parse_convolutions, parse_products
    from et_sim.layerfile.layer_file import layer_file_text
    from et_sim.layerfile.reading import parse_layer_file, read_text
    from et_sim.trace.disk import replace_all

    if options.strategy not in STRATEGIES:
        near = did_you_mean(options.strategy.upper(), STRATEGIES)
        remedy = f"{near} known: {', '.join(STRATEGIES)}".strip()
        raise UsageError(f"there is no strategy {options.strategy!r}", remedy=remedy)
    refuse_overwriting([options.input], [options.output])
    source = str(options.input)
    if options.images is None:
        products = parse_products(read_text(options.input), source, STRATEGIES)
    else:
        products = parse_convolutions(read_text(options.input), source, options.images)
    shape = ProductSharing(
        options.ranks,
        options.packages,
        options.value_bytes,
        options.update,
        options.strategy,
        options.last_bottom_layer,
    )
    layer_file = layers_of(products, shape, _timer(options), source)
    text = layer_file_text(layer_file)
    parse_layer_file(text, str(options.output))  # checks that the output can be read
    replace_all([(options.output, text.encode())])
    yield from _report(options, layer_file, shape, rounded_up(products, shape))


def _timer(options: Options) -> Timer:
    from converters.layers.gemm import roofline_timer, systolic_timer
    from et_sim.compute.systolic import ClockedArray
    from et_sim.compute.systolic.files import parse_config
    from et_sim.layerfile.reading import read_text

    if options.compute == "roofline":
        if options.config is not None:
            raise UsageError("--config requires a systolic array", remedy="add --compute systolic")
        if options.clock_ghz is not None:
            raise UsageError("--clock-ghz requires a systolic array", remedy="add --compute systolic")
        return roofline_timer(*_peak_and_bandwidth(options))
    if options.tflops is not None or options.memory_gbps is not None:
        raise UsageError(
            "--tflops and --memory-gbps require the roofline", remedy="leave them out with --compute systolic"
        )
    if options.config is None:
        raise UsageError(
            "--compute systolic lacks the array", remedy="name a configuration of SCALE-Sim: --config CFG"
        )
    clock = _clock(options)
    if not 0 < clock < float("inf"):
        raise UsageError(f"the clock is {clock}", remedy="give a number of more than 0")
    config = parse_config(read_text(options.config), str(options.config))
    return systolic_timer(ClockedArray(config.array, clock))


def _peak_and_bandwidth(options: Options) -> tuple[float, float]:
    peak = _PEAK if options.tflops is None else options.tflops
    return peak, _BANDWIDTH if options.memory_gbps is None else options.memory_gbps


def _clock(options: Options) -> float:
    return 1.0 if options.clock_ghz is None else float(options.clock_ghz)


def _report(options: Options, layer_file: LayerFile, shape: ProductSharing, rounded: int) -> Iterator[str]:
    import json

    from et_sim.layerfile.layer_file import LayerPhase

    phases = {phase.words: _totals(layer_file, phase) for phase in LayerPhase}
    if options.json:
        content = {
            "input": str(options.input),
            "output": str(options.output),
            "loop": layer_file.keyword.value,
            "layers": len(layer_file.layers),
            "ranks": shape.npus,
            "packages": shape.packages,
            "phases": phases,
            "rounded_up": rounded,
        }
        yield json.dumps(content, indent=2, ensure_ascii=False)
        return
    yield f"{options.input} -> {options.output}"
    for label, text in _facts(options, layer_file, shape, phases):
        yield f"  {label:<15} {text}"
    if rounded:
        yield f"  {'rounded up':<15} {rounded:,} of the layers, which cannot be shared evenly"
    yield f"  {'convert with':<15} et-convert text {in_shell(options.output)} -o PREFIX --ranks {shape.npus}"


def _totals(layer_file: LayerFile, phase: LayerPhase) -> dict[str, int]:
    works = [layer.work(phase) for layer in layer_file.layers]
    sizes = [work.bytes for work in works if work.collective is not None]
    compute = sum(work.compute_ns for work in works)
    return {"compute_ns": compute, "collectives": len(sizes), "bytes": sum(sizes)}


def _facts(
    options: Options, layer_file: LayerFile, shape: ProductSharing, phases: dict[str, dict[str, int]]
) -> Iterator[tuple[str, str]]:
    from et_sim.basics.units import format_bytes, format_ns, plural

    yield "loop", f"{layer_file.keyword}, {plural(len(layer_file.layers), 'layer')}"
    packages = f" in {shape.packages:,} packages of {shape.per_package:,}" if shape.packages > 1 else ""
    yield "shared by", f"{plural(shape.npus, 'NPU')}{packages}"
    for words, total in phases.items():
        collectives = plural(total["collectives"], "collective")
        sent = f", {format_bytes(total['bytes'])} in {collectives}" if total["collectives"] else ""
        yield words, f"{format_ns(total['compute_ns'])} of computation{sent}"
    machine = "{:g} TFLOPS and {:g} GB/s".format(*_peak_and_bandwidth(options))
    if options.compute == "systolic":
        machine = f"{options.config} at {_clock(options):g} GHz"
    yield "times", f"{options.compute}, {machine}"
