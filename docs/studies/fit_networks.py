"""Figures of networks between nodes, fitted again without each lab: `python docs/studies/fit_networks.py`.

Latency, share of the rate and filling belong to a kind of network (`et_sim/machine/presets/networks`), and
are fitted to the tables of all labs. The errors on a lab whose tables were left out are what the figures are
worth for a network that was never measured; `fit_bands` takes widths from them. Each of these searches begins
at the same figures, which no lab gave (`BEGIN`), and RCCL's factor of messages between nodes, which one lab's
tables gave, is left out. One lab has cards slow enough to show how filling depends on their rate; without it,
filling does not. Two things are not left out: the rate from which on filling holds, which that lab gave, and
the form of the model, which was chosen with all tables in view. A kind that one lab measured has the figures
of InfiniBand.

A network of which nothing is known has the figures of InfiniBand. Its errors are those of all tables, as if
their sources did not state the network, with figures from InfiniBand of other labs.

Not here: widths (`fit_bands`), and the shares of errors in a time (`et_sim.basics.uncertainty`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from statistics import fmean

from accuracy_lines import lab_of, public_rows
from msgspec import Struct
from msgspec.structs import replace

from et_sim.machine.accuracy import LARGE_BYTES
from et_sim.machine.collective_library import Call, Library
from et_sim.machine.collective_library.between import Between
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_machine
from et_sim.validation.networks import machine_measured
from et_sim.validation.predictions import machine_named
from et_sim.validation.row import DEGRADED, Collective, Row
from et_sim.validation.rows import Errors

FIGURES = ("latency_ns", "share", "fill", "fill_size")
STEPS = (1.5, 1.2, 1.05)  # factors of a search, one figure at a time
BEGIN = {"latency_ns": 10_000.0, "share": 0.9, "fill": 1.0, "fill_size": 1 << 24}
INFINIBAND = "infiniband"
OF_FILL_RATE = "aistabci/abci2.0benchmark"  # the lab with slow cards


class Measured(Struct, frozen=True):
    """A measured collective between nodes, and the library that would run it."""

    row: Row
    kind: str
    library: Library
    call: Call
    unstated: Library | None = None  # the same, if the source did not state the network

    @property
    def is_small(self) -> bool:
        """Return whether latencies matter for it."""
        return self.call.size < LARGE_BYTES

    def told(self, figures: Between) -> Between:
        """Return figures with what the plugin of the row's network reports and allows."""
        own = self.library.between
        assert own is not None
        return replace(figures, told_latency_ns=own.told_latency_ns, protocols=own.protocols)

    @property
    def unfitted(self) -> Measured:
        """Return the collective without a factor of messages between nodes."""
        return replace(self, library=_without_factor(self.library))

    @property
    def not_stated(self) -> Measured:
        """Return the collective on a network that is not known."""
        assert self.unstated is not None
        return replace(self, library=_without_factor(self.unstated))

    def error(self, figures: Between | None) -> float:
        """Return the logarithm of measured by predicted, with other figures."""
        assert self.row.measured_us is not None
        library = replace(self.library, between=figures)
        return math.log(self.row.measured_us / library.choice(self.call).time_us)


def _without_factor(library: Library) -> Library:
    return replace(library, calibration=replace(library.calibration, between_latency=1.0))


@cache
def measured() -> list[Measured]:
    """Return all collectives whose source states the cards and the kind of the network."""
    rows = [(row, row.job) for row in public_rows() if isinstance(row.job, Collective)]
    return [each for row, job in rows for each in _measured(row, job)]


def _measured(row: Row, job: Collective) -> Iterator[Measured]:
    name = machine_named(row.hardware)
    if name is None or job.nodes == 1 or row.size_class.endswith(DEGRADED):
        return
    machine = machine_measured(name, job.gpus, job.nodes, row.hardware, row.network)
    library = _library(machine.text, job)
    between = None if library is None else library.between
    if library is None or between is None or preset(machine.text).node >= job.gpus or not machine.is_stated:
        return
    dtype = datatype_named(job.datatype) or ""
    call = Call(job.kind, job.gpus, -(-job.gpus // library.node), job.bytes, dtype)
    unstated = _library(machine_measured(name, job.gpus, job.nodes, row.hardware, "").text, job)
    yield Measured(row, between.kind.partition("-")[0], library, call, unstated)


def _library(machine: str, job: Collective) -> Library | None:
    known = preset(machine)
    library = read_machine(system=known.system, network=known.network).system.library
    return replace(library, algorithms=(job.algorithm,)) if library and job.algorithm else library


def cost(rows: Sequence[Measured], figures: Between) -> float:
    """Return the mean absolute error; each table has the same weight."""
    tables: dict[str, list[float]] = {}
    for each in rows:
        tables.setdefault(each.row.table, []).append(abs(each.error(each.told(figures))))
    return fmean(fmean(errors) for errors in tables.values())


def fitted(rows: Sequence[Measured], begin: Between) -> Between:
    """Return the figures that fit rows best, searched one at a time."""
    best, least = begin, cost(rows, begin)
    for factor in STEPS:
        is_better = True
        while is_better:
            is_better = False
            for name in FIGURES:
                for value in (getattr(best, name) * factor, getattr(best, name) / factor):
                    other = replace(best, **{name: min(value, 1.0) if name == "share" else value})
                    found = cost(rows, other)
                    if found < least - 1e-4:
                        best, least, is_better = other, found, True
    return best


def left_out() -> dict[tuple[str, int], float]:
    """Return errors, by table and row, on labs that the figures were fitted without."""
    found: dict[tuple[str, int], float] = {}
    infiniband = [each.unfitted for each in measured() if each.kind == INFINIBAND]
    for kind in sorted({each.kind for each in measured()}):
        rows = [each.unfitted for each in measured() if each.kind == kind]
        for lab in sorted({lab_of(each.row) for each in rows}):
            figures = _without(rows, lab) or _without(infiniband, lab)
            if figures is not None:
                found |= _errors((each for each in rows if lab_of(each.row) == lab), figures)
    return found


def as_unknown() -> dict[tuple[str, int], float]:
    """Return errors, by table and row, if the source of no table stated the network."""
    found: dict[tuple[str, int], float] = {}
    infiniband = [each.unfitted for each in measured() if each.kind == INFINIBAND]
    for lab in sorted({lab_of(each.row) for each in measured()}):
        figures = _without(infiniband, lab)
        if figures is not None:
            rows = (each.not_stated for each in measured() if lab_of(each.row) == lab)
            found |= _errors(rows, figures)
    return found


def _without(rows: Sequence[Measured], lab: str) -> Between | None:
    """Return figures that fit the rows of other labs; None if there are none."""
    others = [each for each in rows if lab_of(each.row) != lab]
    own = rows[0].library.between if rows else None
    if not others or own is None:
        return None
    rate = 0.0 if lab == OF_FILL_RATE else own.fill_rate
    return fitted(others, replace(own, fill_rate=rate, **BEGIN))


def _errors(rows: Iterable[Measured], figures: Between) -> dict[tuple[str, int], float]:
    return {(each.row.table, each.row.number): each.error(each.told(figures)) for each in rows}


def main() -> None:
    """Print the errors of each kind of network, fitted and left out, and of networks that are not known."""
    groups: dict[tuple[str, bool], list[Measured]] = {}
    for each in measured():
        groups.setdefault((each.kind, each.is_small), []).append(each)
    errors, unknown = left_out(), as_unknown()
    for (kind, is_small), rows in sorted(groups.items()):
        of_fit = Errors.of([math.exp(-each.error(each.library.between)) for each in rows]).e
        without = _text(rows, errors)
        size = "below 64 MiB" if is_small else "from 64 MiB on"
        sys.stdout.write(f"{kind:10} {size:14} {len(rows):4} rows  E {of_fit:5.1f} %, left out {without}")
        sys.stdout.write(f", as a network that is not known {_text(rows, unknown)}\n")


def _text(rows: Sequence[Measured], errors: Mapping[tuple[str, int], float]) -> str:
    apart = [errors[key] for each in rows if (key := (each.row.table, each.row.number)) in errors]
    return f"E {Errors.of([math.exp(-error) for error in apart]).e:5.1f} %" if apart else "-"


if __name__ == "__main__":
    main()
