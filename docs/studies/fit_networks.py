"""Figures of networks between nodes, fitted again without each lab: `python docs/studies/fit_networks.py`.

Latency, share of the rate and filling belong to a kind of network (`et_sim/machine/presets/networks`), and
are fitted to the tables of all labs. The errors on a lab whose tables were left out are what the figures are
worth for a network that was never measured; `fit_bands` takes widths from them. Nothing is known beyond for a
kind that one lab measured. One lab has cards slow enough to show how filling depends on their rate; without
it, filling does not. The latency of RoCE is fitted to one lab's NCCL alone, as RCCL has a factor of its
own, so that its small collectives have no such error.

Not here: widths (`fit_bands`), and the shares of errors in a time (`et_sim.basics.uncertainty`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
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
ROCE = "roce"
OF_FILL_RATE = "aistabci/abci2.0benchmark"  # the lab with slow cards


class Measured(Struct, frozen=True):
    """A measured collective between nodes, and the library that would run it."""

    row: Row
    kind: str
    library: Library
    call: Call

    @property
    def is_small(self) -> bool:
        """Return whether latencies matter for it."""
        return self.call.size < LARGE_BYTES

    def told(self, figures: Between) -> Between:
        """Return figures with what the plugin of the row's network reports and allows."""
        own = self.library.between
        assert own is not None
        return replace(figures, told_latency_ns=own.told_latency_ns, protocols=own.protocols)

    def error(self, figures: Between | None) -> float:
        """Return the logarithm of measured by predicted, with other figures."""
        assert self.row.measured_us is not None
        library = replace(self.library, between=figures)
        return math.log(self.row.measured_us / library.choice(self.call).time_us)


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
    known = preset(machine.text)
    library = read_machine(system=known.system, network=known.network).system.library
    between = None if library is None else library.between
    if library is None or between is None or known.node >= job.gpus or not machine.is_stated:
        return
    if job.algorithm:
        library = replace(library, algorithms=(job.algorithm,))
    dtype = datatype_named(job.datatype) or ""
    call = Call(job.kind, job.gpus, -(-job.gpus // library.node), job.bytes, dtype)
    yield Measured(row, between.kind.partition("-")[0], library, call)


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
    kinds: dict[str, list[Measured]] = {}
    for each in measured():
        kinds.setdefault(each.kind, []).append(each)
    for kind, rows in kinds.items():
        for lab in sorted({lab_of(each.row) for each in rows}):
            others = [each for each in rows if lab_of(each.row) != lab]
            begin = rows[0].library.between
            if not others or begin is None:
                continue
            if lab == OF_FILL_RATE:
                begin = replace(begin, fill_rate=0.0)
            figures = fitted(others, begin)
            for each in rows:
                if lab_of(each.row) == lab and not (kind == ROCE and each.is_small):
                    found[each.row.table, each.row.number] = each.error(each.told(figures))
    return found


def main() -> None:
    """Print the errors of each kind of network, fitted and left out."""
    errors = left_out()
    groups: dict[tuple[str, bool], list[Measured]] = {}
    for each in measured():
        groups.setdefault((each.kind, each.is_small), []).append(each)
    for (kind, is_small), rows in sorted(groups.items()):
        of_fit = Errors.of([math.exp(-each.error(each.library.between)) for each in rows]).e
        without = [
            math.exp(-errors[key]) for each in rows if (key := (each.row.table, each.row.number)) in errors
        ]
        text = f"{Errors.of(without).e:5.1f} %" if without else "-"
        size = "below 64 MiB" if is_small else "from 64 MiB on"
        sys.stdout.write(f"{kind:10} {size:14} {len(rows):4} rows  E {of_fit:5.1f} %, left out {text}\n")


if __name__ == "__main__":
    main()
