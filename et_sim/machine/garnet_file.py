"""Network files of Garnet in ASTRA-sim, converted to the lists of a graph file with `credits`.

`Torus3D`: packages of NPUs on local rings, connected by horizontal and vertical rings. `NV_Switch`: NPUs on
several switches, over which they spread their packets. Parallel rings of one direction, and parallel
switches, are merged into one, whose links have the bandwidth of all.
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.errors import MachineError, did_you_mean
from et_sim.documents.reading import MOST_DEVICES, whole_number
from et_sim.machine.credits import MOST_RANKS
from et_sim.machine.recognise import Imported

TORUS, SWITCH = "Torus3D", "NV_Switch"
BITS_PER_BYTE = 8
NUMBERS = (
    *("num-npus", "num-packages", "package-rows", "local-rings", "vertical-rings", "horizontal-rings"),
    *("links-per-tile", "flit-width", "package-packet-size", "tile-link-width", "package-link-width"),
    *("vcs-per-vnet", "router-latency", "local-link-latency", "package-link-latency", "buffers-per-vc"),
)
WITHOUT_EFFECT = {
    "local-packet-size": "packets have package-packet-size in every dimension, as in Garnet",
    "local-link-efficiency": "Garnet reads it, and does not apply it",
    "package-link-efficiency": "Garnet reads it, and does not apply it",
    "routing-algorithm": "messages take shortest paths",
}
OPTIONAL = ("local-rings", "vertical-rings", "horizontal-rings", "links-per-tile", "package-rows")


class _File:
    """The keys of a file, and the lines that hold them."""

    def __init__(self, text: str, place: str) -> None:
        self.place = place
        self.words: dict[str, str] = {}
        self._lines: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.partition("#")[0].strip():
                continue
            name, _, value = (part.strip() for part in line.partition("#")[0].partition(":"))
            known = (*NUMBERS, *WITHOUT_EFFECT, "topology")
            if name not in known:
                raise MachineError(
                    f"key {name!r} is not known",
                    place=f"{place}: line {number}",
                    remedy=did_you_mean(name, known) or f"known: {', '.join(known)}",
                )
            self.words[name], self._lines[name] = value, number

    def number(self, name: str, most: int = MOST_DEVICES) -> int:
        """Return a whole number from 1 to `most`."""
        word = self.words.get(name, "1" if name in OPTIONAL else "")
        number = whole_number(word)
        if number is None or not 1 <= number <= most:
            cause = f"{name} is {word}" if word else f"{name} is missing"
            raise self.fault(name, cause, f"allowed: 1 to {most:,}")
        return number

    def bytes(self, name: str) -> int:
        """Return the bytes of a width that is given in bits."""
        bits = self.number(name)
        if bits % BITS_PER_BYTE:
            raise self.fault(name, f"{name} is {bits} bits", "give a multiple of 8")
        return bits // BITS_PER_BYTE

    def fault(self, name: str, cause: str, remedy: str) -> MachineError:
        """Return an error with the line of a key."""
        line = self._lines.get(name)
        return MachineError(cause, place=self.place + (f": line {line}" if line else ""), remedy=remedy)


def import_garnet(text: str, place: str) -> Imported:
    """Convert a Garnet file."""
    file = _File(text, place)
    shape = file.words.get("topology", "")
    if shape not in (TORUS, SWITCH):
        raise file.fault("topology", f"topology is {shape or 'missing'}", f"{TORUS} or {SWITCH}")
    npus = file.number("num-npus", MOST_RANKS)
    devices = [{"name": f"npu{n}", "kind": "npu"} for n in range(npus)]
    links: list[dict[str, Any]] = []
    sizes: tuple[int, ...] = (npus,)
    routing = {"routing": "dimension-order"} if shape == TORUS else {}
    if shape == TORUS:
        sizes = _sizes(file, npus)
        rings = ("local-rings", "horizontal-rings", "vertical-rings")
        stride = 1
        for tier, (size, name) in enumerate(zip(sizes, rings, strict=True)):
            figures = _figures(file, "package" if tier else "tile", "package" if tier else "local")
            links += _ring(npus, stride, size, file.number(name), figures)
            stride *= size
    else:
        devices.append({"name": "switch", "kind": "switch"})
        figures = {**_figures(file, "tile", "local"), "count": file.number("links-per-tile")}
        links += [{"from": f"npu{n}", "to": "switch", **figures} for n in range(npus)]
    credits = {
        "flit": file.bytes("flit-width"),
        "packet": file.number("package-packet-size"),
        "channels": file.number("vcs-per-vnet"),
        "buffer": file.number("buffers-per-vc"),
        "router-cycles": file.number("router-latency"),
        "cycle": 1,
        "padding": True,
        "turns": "flit",
    }
    notices = tuple((name, f"no effect: {why}") for name, why in WITHOUT_EFFECT.items() if name in file.words)
    return Imported(
        {"devices": devices, "links": links},
        dimensions=sizes,
        keys={"credits": credits, **routing},
        notices=notices,
    )


def _sizes(file: _File, npus: int) -> tuple[int, int, int]:
    """Return the NPUs of a package, the packages in a row, and the rows."""
    packages, rows = file.number("num-packages"), file.number("package-rows")
    if npus % packages:
        raise file.fault("num-packages", f"{npus} NPUs do not divide among {packages} packages", "correct it")
    if packages % rows:
        raise file.fault("package-rows", f"{packages} packages do not divide among {rows} rows", "correct it")
    return npus // packages, packages // rows, rows


def _figures(file: _File, width: str, latency: str) -> dict[str, Any]:
    """Return the bandwidth and latency of a link; a cycle is 1 ns."""
    return {
        "bandwidth": f"{file.bytes(f'{width}-link-width')}GB/s",
        "latency": file.number(f"{latency}-link-latency"),
    }


def _ring(npus: int, stride: int, size: int, rings: int, figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the links of all rings of a dimension; every second ring runs the other way."""
    links = []
    ways = {} if size == 1 else {1: rings} if size == 2 else {1: (rings + 1) // 2, size - 1: rings // 2}
    for way, count in ways.items():
        for npu in range(npus) if count else ():
            here = npu // stride % size
            there = npu + ((here + way) % size - here) * stride
            ends = {"from": f"npu{npu}", "to": f"npu{there}", "one-way": True}
            links.append({**ends, "count": count, **figures})
    return links
