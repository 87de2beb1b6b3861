"""`et-sim calibrate recording`: fit a machine's device to the kernels of a recorded job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.errors import UsageError, unreadable
from et_sim.basics.files import write_json
from et_sim.basics.units import format_ns, plural
from et_sim.cli.calibrate_kernels import KernelFit
from et_sim.cli.calibrate_report import FitOptions, conclude

if TYPE_CHECKING:
    from et_sim.calibrate.kernels import MeasuredKernel
    from et_sim.calibrate.recording import RecordingRows


class Options(FitOptions):
    """Fit the device of a machine to the kernels of a recording that et-convert pytorch has converted. Few
    shapes determine few figures. Collectives become a table for et-sim calibrate nccl.
    """

    recording: Annotated[str, "the traces PREFIX.<rank>.et, or one of them", "PREFIX"]
    dtype: Annotated[str | None, "of kernels that are fitted (default: most time)", "NAME"] = None
    kernels: Annotated[Path | None, "write kernels with shapes here", "FILE.csv"] = None
    collectives: Annotated[Path | None, "write collectives here", "FILE.csv"] = None


def run(options: Options) -> int:
    """Read the recording, write the tables, and fit the device."""
    from et_sim.calibrate.recording import read_recording
    from et_sim.machine.presets import entry, unchanged

    machine, _, npus = options.machine.partition(":")
    name = unchanged(options.machine)
    recording = read_recording(options.recording, int(npus or 0), entry(name).fewest)
    rows, notes = _of_one_datatype(recording, options.dtype)
    if options.kernels:
        _write_kernels(options.kernels, recording)
    if options.collectives:
        _write_collectives(options.collectives, recording)
    fit = KernelFit.of(machine, rows, takes_few=True)

    def written() -> dict[str, Any]:
        if not fit.result.fitted:
            raise UsageError(
                "nothing was fitted, so there is no machine to write",
                remedy="merge recordings: write their kernels with --kernels, and fit the tables together",
            )
        return fit.written(recording.files)

    data = {**_data(recording), **fit.data, "notes": notes}
    return conclude(options, data, (*_text(recording), *fit.text, *notes), written)


def _of_one_datatype(recording: RecordingRows, wanted: str | None) -> tuple[list[MeasuredKernel], list[str]]:
    """Return the rows of one datatype, and notes about the others."""
    from et_sim.machine.datatypes import datatype_named

    took: dict[str, float] = {}
    for row in recording.kernels:
        took[row.datatype] = took.get(row.datatype, 0.0) + row.us * recording.counts[row]
    chosen = max(took, key=lambda datatype: took[datatype], default="")
    if wanted is not None:
        chosen = datatype_named(wanted) or ""
        if chosen not in took:
            raise UsageError(
                f"no kernel with a shape computes in {wanted}",
                remedy=f"there are: {', '.join(datatype or 'unknown' for datatype in took) or 'none'}",
            )
    kept = [row for row in recording.kernels if row.datatype == chosen]
    notes = []
    for other in sorted(set(took) - {chosen}):
        kernels = sum(count for row, count in recording.counts.items() if row.datatype == other)
        notes.append(f"left out: {kernels} kernels of {other or 'unknown dtype'}; --dtype takes them instead")
    return kept, notes


def _text(recording: RecordingRows) -> Iterator[str]:
    from et_sim.calibrate.recording import SHAPED

    whole = sum(part.us for part in recording.parts.values())
    kernels = sum(part.kernels for part in recording.parts.values())
    yield f"{plural(len(recording.files), 'trace')}: {kernels:,} kernels, {format_ns(int(whole * 1000))}"
    for name, part in recording.parts.items():
        line = f"  {name}: {part.kernels:,} ({100 * part.us / whole:.0f} % of the time)"
        yield f"{line}, {len(recording.kernels)} shapes" if name == SHAPED else line
    if recording.kernels:
        yield f"equal kernels differ from their median by E {recording.repeats:.1f} %"
    if recording.collectives:
        yield f"{'collective':15} dtype  ranks  nodes        bytes  times         us"
    for row in recording.collectives:
        call = row.call
        yield (
            f"{call.kind:15} {call.datatype or '-':5}  {call.ranks:5}  {call.nodes:5}  {call.size:11}  "
            f"{recording.calls[call]:5}  {row.us:9.1f}"
        )
    if recording.waits:
        yield "not all members were recorded: of these, the least time is taken, and waits may be in it"
    for why, count in recording.left.items():
        yield f"left out: {count:,} collectives {why}"


def _data(recording: RecordingRows) -> dict[str, Any]:
    return {
        "kernels": {
            name: {"kernels": part.kernels, "us": round(part.us, 3)} for name, part in recording.parts.items()
        },
        "repeats_e": recording.repeats,
        "collectives": [
            {
                **dict(zip(COLUMNS, _columns(row.call, row.us), strict=True)),
                "times": recording.calls[row.call],
            }
            for row in recording.collectives
        ],
        "collectives_left_out": dict(recording.left),
        "waits_for_unrecorded": recording.waits,
    }


COLUMNS = ("collective", "dtype", "ranks", "nodes", "bytes", "us")


def _columns(call: Any, us: float) -> Sequence[Any]:
    return call.kind, call.datatype, call.ranks, call.nodes, call.size, float(f"{us:.6g}")


def _write_collectives(path: Path, recording: RecordingRows) -> None:
    rows = [_columns(row.call, row.us) for row in recording.collectives]
    _write(path, [COLUMNS, *rows])


def _write_kernels(path: Path, recording: RecordingRows) -> None:
    """Write a table for each datatype, and a JSON file with their properties."""
    stem = Path(recording.source).name
    names = {row.datatype: f"{stem}_{row.datatype or 'unknown'}" for row in recording.kernels}
    lines = [(names[row.datatype], row.shape, f"{row.us:.6g}") for row in recording.kernels]
    _write(path, [("table", "shape", "us"), *sorted(lines)])
    write_json({name: {"dtype": datatype} for datatype, name in names.items()}, path.with_suffix(".json"))


def _write(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    from et_sim.views.sheet import csv_blocks

    try:
        path.write_text("".join(csv_blocks(rows)), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {unreadable(error)}", remedy="name a file in a folder"
        ) from error
