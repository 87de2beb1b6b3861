"""A part of a graph as its generator leaves it, and what a generator receives about where it stands."""

from __future__ import annotations

from msgspec import Struct

from et_sim.machine.graph import NIC, GraphBuilder
from et_sim.machine.model import Rails
from et_sim.machine.topology.fields import Fields


class Place(Struct, frozen=True):
    """Where a part stands in the whole."""

    prefix: str = ""  # of the names of its switches
    tier: int = 1  # of its lowest devices besides NPUs
    given: tuple[int, ...] | None = None  # what it connects; None: NPUs that it makes


class Ends(Struct, frozen=True):
    """What a generator connects: devices, and where it links to them, which may be NICs before them."""

    devices: list[int]
    ports: list[int]
    tier: int  # of the lowest switches


class NetworkPart(Struct, frozen=True):
    """What a generator has made."""

    devices: list[int]  # that it connects, in the order of ranks
    dimensions: tuple[int, ...]  # that it implies, innermost first
    gateway: int  # by which a network around it can reach all of it
    grid: tuple[tuple[int, bool], ...] = ()  # (NPUs, whether it wraps round) by dimension, of meshes and tori
    rails: Rails | None = None
    groups: tuple[tuple[int, ...], ...] = ()  # devices of each, of a dragonfly


def endpoints(build: GraphBuilder, fields: Fields, place: Place, count: int) -> Ends:
    """NPUs of the generator's own, or what it was given; with a NIC for each, if that is asked for."""
    return behind_nics(build, fields, place, devices_of(build, fields, place, count))


def devices_of(build: GraphBuilder, fields: Fields, place: Place, count: int) -> list[int]:
    """NPUs of the generator's own, or what it was given."""
    if place.given is None:
        return build.npus(count)
    if len(place.given) != count:
        raise fields.fault(
            "generator",
            f"it connects {count} devices, and there are {len(place.given)} to connect",
            "make the numbers of the inner and the outer network agree",
        )
    return list(place.given)


def behind_nics(
    build: GraphBuilder, fields: Fields, place: Place, devices: list[int], sharers: int = 1
) -> Ends:
    """Devices with a NIC for each `sharers` of them, if NICs are asked for."""
    if "nic" not in fields:
        return Ends(devices, devices, place.tier)
    part = fields.part("nic")
    figures = part.figures()
    part.done()
    nics = [
        build.device(f"{place.prefix}nic{number}", NIC, place.tier)
        for number in range(len(devices) // sharers)
    ]
    for number, device in enumerate(devices):
        build.cable(device, nics[number // sharers], figures)
    return Ends(devices, nics, place.tier + 1)
