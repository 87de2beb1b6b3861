"""`et-sim systolic`: the costs of layers on a systolic array, from SCALE-Sim's own files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import InputError, unreadable
from et_sim.basics.units import plural

if TYPE_CHECKING:
    from et_sim.compute.systolic.files import Config
    from et_sim.compute.systolic.model import LayerReport

RULES = ("scale-sim", "corrected")
LAYOUTS = ("conv", "gemm")


class Options(Command):
    """Read a topology and a configuration of SCALE-Sim, and print the costs of each layer: cycles, stalls,
    utilisation, and words moved. Nothing is simulated word by word.
    """

    topology: Annotated[Path, "the layers, one per row", "TOPOLOGY.csv"]
    config: Annotated[Path, "the array, an INI file", "CFG", Option("--config -c")]
    input_type: Annotated[
        str | None,
        "kind of rows: convolutions, or products M, N, K (default: by the number of columns)",
        Option("--input-type -i", choices=LAYOUTS),
    ] = None
    rules: Annotated[str, f"rules to apply (default: {RULES[0]})", Option(choices=RULES)] = RULES[0]
    out: Annotated[Path | None, "write SCALE-Sim's three reports there, as CSV", "DIR"] = None
    json: Annotated[bool, "print everything as JSON"] = False


def run(options: Options) -> int:
    """Read the files, compute, write and print the reports."""
    from et_sim.compute.systolic.files import FileLayout, parse_config, parse_topology
    from et_sim.compute.systolic.model import reports
    from et_sim.machine.systolic import SystolicRules

    config = parse_config(_read(options.config), str(options.config), SystolicRules(options.rules))
    layout = FileLayout(options.input_type) if options.input_type else None
    layers = parse_topology(_read(options.topology), str(options.topology), layout)
    layer_reports = reports(layers, config.array)
    written = _write(options.out, layer_reports) if options.out else []
    if options.json:
        print(json.dumps(_data(config, layer_reports), indent=2, ensure_ascii=False))
        return 0
    print(
        "\n".join([*_text(options.topology, config, layer_reports), *(f"wrote {path}" for path in written)])
    )
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=str(path), remedy="name an existing file"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8 text", place=str(path), remedy="give a text file"
        ) from None


def _write(directory: Path, layer_reports: list[LayerReport]) -> list[Path]:
    rows: dict[str, Callable[[LayerReport], dict[str, Any]]] = {
        "COMPUTE_REPORT.csv": lambda report: report.compute_row,
        "BANDWIDTH_REPORT.csv": lambda report: report.bandwidth_row,
        "DETAILED_ACCESS_REPORT.csv": lambda report: report.access_row,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, row in rows.items():
            lines = [", ".join(["LayerID", *row(layer_reports[0])])]
            lines += [
                ", ".join(map(str, [number, *row(report).values()]))
                for number, report in enumerate(layer_reports)
            ]
            (directory / name).write_text("".join(f"{line},\n" for line in lines))
    except OSError as error:
        raise InputError(
            f"cannot be written: {unreadable(error)}", place=str(directory), remedy="name another directory"
        ) from None
    return [directory / name for name in rows]


def _data(config: Config, layer_reports: list[LayerReport]) -> dict[str, Any]:
    array = config.array
    return {
        "run_name": config.run_name,
        "array": {
            "height": array.height,
            "width": array.width,
            "dataflow": array.dataflow.value,
            "ifmap_kb": array.ifmap_kb,
            "filter_kb": array.filter_kb,
            "ofmap_kb": array.ofmap_kb,
            "interface_bandwidth": array.mode.value,
            "bandwidth": list(array.bandwidths) if array.is_limited else None,
        },
        "rules": array.rules.value,
        "without_effect": list(config.without_effect),
        "total_cycles": sum(report.cycles for report in layer_reports),
        "stall_cycles": sum(report.stalls for report in layer_reports),
        "layers": [
            {
                "name": report.layer.name,
                "M": report.layer.rows,
                "N": report.layer.columns,
                "K": report.layer.inner,
                "macs": report.layer.macs,
                "compute": report.compute_row,
                "bandwidth": report.bandwidth_row,
                "access": report.access_row,
            }
            for report in layer_reports
        ],
    }


def _text(topology: Path, config: Config, layer_reports: list[LayerReport]) -> Iterator[str]:
    from et_sim.basics.alignment import aligned

    array = config.array
    memories = "/".join(str(kb) for kb in (array.ifmap_kb, array.filter_kb, array.ofmap_kb))
    words = ", ".join(map(str, array.bandwidths))
    limit = f"{words} words per cycle" if array.is_limited else "as much bandwidth as it needs"
    layers = plural(len(layer_reports), "layer")
    yield f"{topology}: {layers} on {array.height} x {array.width}, {array.dataflow},"
    yield f"  {memories} KiB for ifmap/filter/ofmap, {limit}, rules: {array.rules}"
    if config.without_effect:
        yield f"  without effect: {', '.join(config.without_effect)}"
    yield ""
    table = [["layer", "cycles", "stalls", "overall", "mapping", "compute", "SRAM reads", "SRAM writes"]]
    for report in layer_reports:
        row, sram = report.compute_row, report.sram_words
        shares = (f"{row[name]:.2f} %" for name in list(row)[2:])
        moved = (sram[0] + sram[1], sram[2])
        counts = (f"{report.cycles:,}", f"{report.stalls:,}")
        table.append([report.layer.name, *counts, *shares, *(f"{words:,}" for words in moved)])
    yield from aligned(table, "<>>>>>>>")
    if len(layer_reports) > 1:
        cycles, stalls = (
            sum(report.cycles for report in layer_reports),
            sum(report.stalls for report in layer_reports),
        )
        yield f"all: {cycles:,} cycles, {stalls:,} of them stalls"
