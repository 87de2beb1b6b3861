"""Tables and pictures of docs/studies/dlrm.md, from the results of its runs.

Not here: the runs (`dlrm`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dlrm
from dlrm import Found, Results, lone, trained
from dlrm_setup import MIB, SYSTEMS, Scale
from plots import Axis, Bar, Group, Line, lines, stacked_bars
from study_page import table, write_study

PAGE = Path(__file__).with_name("dlrm.md")
PARTS = ("compute", "embeddings", "bottom MLP", "first top layer", "other top layers", "end")
SHOWN_LAYERS = ("bottom0", "bottom3", "top0", "top5", "top10")


def write_page(scale: Scale, results: Results) -> None:
    """Write all that the script finds."""
    write_study(PAGE, texts(scale, results), pictures(scale, results))


def texts(scale: Scale, results: Results) -> dict[str, str]:
    """Return the tables by the names of their markers."""
    return {
        "lone": lone_table(scale, results),
        "flow": against_flow(scale, results),
        "queues": queue_table(scale, results),
        "layers": layer_table(scale, results),
        "iterations": iteration_table(scale, results),
        "ratios": ratio_table(scale, results),
        "injection": injection_table(scale, results),
        "buffers": buffer_table(scale, results),
        "chunks": chunk_table(scale, results),
        "costs": cost_table(scale, results),
    }


def pictures(scale: Scale, results: Results) -> dict[str, str]:
    """Return the pictures by file."""
    bars = [Group(system, [bar_of(results[trained(scale, system)])]) for system in SYSTEMS]
    ratios = [
        Line(algorithm, [(size / 1024, ratio_of(scale, results, algorithm, size)) for size in scale.sizes])
        for algorithm in dlrm.ALGORITHMS
    ]
    delays = [
        Line(
            system, [(float(one[:-2]), ms(results[trained(scale, system, injection=one)])) for one in delayed]
        )
        for delayed in [dlrm.INJECTIONS]
        for system in SYSTEMS
    ]
    across = Axis("injection latency, µs", is_log=True)
    return {
        "dlrm-parts.svg": stacked_bars("Two iterations, packet by packet", "ms", PARTS, bars),
        "dlrm-lone.svg": lines(
            "A lone all-reduce: packets against no contention",
            Axis("KiB", is_log=True),
            Axis("ratio", is_log=True),
            ratios,
        ),
        "dlrm-injection.svg": lines("Two iterations", across, Axis("ms", is_log=True), delays),
    }


def ms(found: Found) -> float:
    """Return the duration of a run."""
    return float(found["makespan_ns"]) / 1e6


def exposed(found: Found, name: str = "") -> float:
    """Return the ms for which the loop waited for the layers whose names have a prefix."""
    times: list[int] = [
        value
        for row in found["layers"]
        if row["layer"].startswith(name)
        for key, value in row.items()
        if key.endswith("_exposed_ns")
    ]
    return sum(times) / 1e6


def parts_of(found: Found) -> list[float]:
    """Return the milliseconds of each part."""
    compute = sum(v / 1e6 for row in found["layers"] for k, v in row.items() if k.endswith("compute_ns"))
    first = sum(exposed({"layers": [row]}) for row in found["layers"] if row["layer"] == "top0")
    waited = [exposed(found, "embedding"), exposed(found, "bottom"), first, exposed(found, "top") - first]
    return [compute, *waited, max(0.0, ms(found) - compute - sum(waited))]


def bar_of(found: Found) -> Bar:
    """Return a bar of these parts."""
    return Bar("", parts_of(found), f"{ms(found):.1f}")


def ratio_of(scale: Scale, results: Results, algorithm: str, size: int) -> float:
    """Compare packets with the analytical model."""
    analytical, packets = (results[lone(scale, model, algorithm, size)] for model in ("analytical", "packet"))
    return ms(packets) / ms(analytical)


def lone_table(scale: Scale, results: Results) -> str:
    """Compare sizes, algorithms and models."""
    rows = []
    for size in scale.sizes:
        for algorithm in dlrm.ALGORITHMS:
            found = [results[lone(scale, model, algorithm, size)] for model in dlrm.MODELS]
            times = [f"{1000 * ms(one):,.1f}" for one in found]
            ratio = f"{ratio_of(scale, results, algorithm, size):.1f}"
            lost = f"{found[-1]['packets']['lost']:,}"
            rows.append([f"{size // 1024:,} KiB, {algorithm}", *times, ratio, lost])
    head = ["all-reduce", "analytical, µs", "flow, µs", "packets, µs", "packets / analytical", "lost"]
    return table(head, rows)


def against_flow(scale: Scale, results: Results) -> str:
    """Compare packets with the model that has contention and no losses."""
    size = min(MIB, scale.sizes[-1])
    flow = ms(results[lone(scale, "flow", "direct", size)])
    cases = (
        ("direct", "direct", dlrm.QUEUES[-1]),
        ("same order, long queues", dlrm.SAME_ORDER, dlrm.QUEUES[-1]),
        ("same order, queues of 350 packets", dlrm.SAME_ORDER, dlrm.QUEUES[0]),
    )
    return "\n".join(
        f"- {name}: {ms(results[lone(scale, 'packet', algorithm, size, packets)]) / flow:.2f} times as long"
        for name, algorithm, packets in cases
    )


def queue_table(scale: Scale, results: Results) -> str:
    """Compare queues with timeouts of the same order."""
    size = min(MIB, scale.sizes[-1])
    analytical = ms(results[lone(scale, "analytical", dlrm.SAME_ORDER, size)])
    rows = []
    for packets in dlrm.QUEUES:
        row = [f"{packets:,} packets"]
        for timeout in dlrm.TIMEOUTS:
            found = results[lone(scale, "packet", dlrm.SAME_ORDER, size, packets, timeout)]
            row.append(f"{ms(found):,.3f} ms ({ms(found) / analytical:,.0f}x)")
        rows.append([*row, f"{found['packets']['lost']:,}"])
    head = ["queue of a port", *(f"minimum RTO {one}" for one in dlrm.TIMEOUTS), "lost"]
    return table(head, rows)


def layer_table(scale: Scale, results: Results) -> str:
    """List raw latencies, from issue to completion, per iteration."""
    found = [{row["layer"]: row for row in results[trained(scale, one)]["layers"]} for one in SYSTEMS]
    wanted = [("embedding", "forward"), ("embedding", "input_gradient")]
    wanted += [(layer, "weight_gradient") for layer in SHOWN_LAYERS]
    rows = []
    for layer, phase in wanted:
        sums = [one[layer].get(f"{phase}_total_ns", 0) / 2e6 for one in found]
        rows.append([f"{layer}, {phase.replace('_', ' ')}", *(f"{value:.2f}" for value in sums)])
    return table(["ms", *SYSTEMS], rows)


def iteration_table(scale: Scale, results: Results) -> str:
    """List the parts of two iterations."""
    rows = []
    for system in SYSTEMS:
        found = results[trained(scale, system)]
        rows.append([system, f"{ms(found):.2f}", *(f"{value:.2f}" for value in parts_of(found))])
    return table(["ms", "two iterations", *PARTS], rows)


def ratio_table(scale: Scale, results: Results) -> str:
    """Compare systems with the fastest one on each model."""
    rows = []
    for model in dlrm.MODELS:
        times = [ms(results[trained(scale, system, model=model)]) for system in SYSTEMS]
        rows.append([model, *(f"{time / min(times):.2f}" for time in times), f"{min(times):.2f} ms"])
    return table(["model", *SYSTEMS, "1.00 is"], rows)


def injection_table(scale: Scale, results: Results) -> str:
    """List injection latencies."""
    rows = []
    for system in SYSTEMS:
        times = [ms(results[trained(scale, system, injection=one)]) for one in dlrm.INJECTIONS]
        rows.append([system, *(f"{time:.2f}" for time in times), f"{times[-1] / times[0]:.1f}"])
    return table(["ms", *dlrm.INJECTIONS, "longest / shortest"], rows)


def buffer_table(scale: Scale, results: Results) -> str:
    """Compare buffers of the global switch that ports share with divided ones."""
    rows = []
    for changed in dlrm.BUFFERED:
        for system in SYSTEMS:
            cells = []
            for is_shared in (False, True):
                for buffer in dlrm.BUFFERS:
                    found = results[trained(scale, system, buffer=buffer, is_shared=is_shared, **changed)]
                    cells.append(f"{ms(found):.2f}{lost(found)}")
            rows.append([f"{system}, {'32 chunks, 128 at a time' if changed else 'default'}", *cells])
    sizes = [f"{buffer // MIB:,} MiB" for buffer in dlrm.BUFFERS]
    head = ["ms", *(f"{size}, divided" for size in sizes), *(f"{size}, shared" for size in sizes)]
    return table(head, rows)


def lost(found: Found) -> str:
    """Format a number of packets; 0 is empty."""
    count = found["packets"]["lost"]
    return f" ({count:,} lost)" if count else ""


def chunk_table(scale: Scale, results: Results) -> str:
    """Compare numbers of chunks, of chunks under way, and windows."""
    rows = []
    for system in dlrm.CHUNKED:
        for chunks in dlrm.CHUNKS:
            cells = [
                f"{ms(results[trained(scale, system, chunks=chunks, concurrency=some, window=window)]):.2f}"
                for window in dlrm.WINDOWS
                for some in dlrm.CONCURRENCIES
            ]
            rows.append([f"{system}, {chunks:,} chunks", *cells])
    head = [
        f"{some} at a time, {window / 1e6:g} MB" for window in dlrm.WINDOWS for some in dlrm.CONCURRENCIES
    ]
    return table(["ms", *head], rows)


def cost_table(scale: Scale, results: Results) -> str:
    """List processor time by kind of run."""
    found = [(point, results[point]) for point in {one.digest: one for one in dlrm.points(scale)}.values()]
    rows = []
    for kind, what in (("lone", "lone all-reduces"), ("dlrm", "two iterations")):
        for model in dlrm.MODELS:
            some = [one for point, one in found if point.name[:2] == (kind, model)]
            rows.append([f"{what}, {model}", *_costs(some)])
    rows.append(["all", *_costs([one for _, one in found])])
    return table(["runs", "how many", "seconds in all", "longest", "million packets"], rows)


def _costs(some: Sequence[dict[str, Any]]) -> list[str]:
    seconds = [one["seconds"] for one in some]
    packets = sum(one["packets"].get("sent", 0) for one in some) / 1e6
    return [str(len(some)), f"{sum(seconds):.1f}", f"{max(seconds):.1f}", f"{packets:.1f}" if packets else ""]
