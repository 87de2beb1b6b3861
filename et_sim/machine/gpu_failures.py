"""Failures of GPUs and nodes within a run: the key `failures` of the system file.

A GPU fails for good, as with the key of the network file: then its links are dead, too. Or its kernels slow
down from a time on: each one takes as long as its parts at the speeds of their times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import parse_ranks
from et_sim.documents.keys import Section, key
from et_sim.machine.failure_effects import check_shares
from et_sim.machine.failure_times import (
    AT,
    NUMBERS,
    RATE,
    SEED,
    check_times,
    first_failure,
    length,
    no_repair,
    share_left,
)
from et_sim.machine.failures import links_of_ranks
from et_sim.machine.networks import Failure, GraphFabric, Network

GPU, NODE = "gpu", "node"


class GpuFailure(Struct, frozen=True):
    """GPUs that fail or slow down, their time and its length."""

    section: Section
    gpu: str | None = key(NUMBERS, "GPUs, by their ranks.", None)
    node: str | None = key(NUMBERS, "Nodes, by their numbers: all GPUs of a line of dimension 0.", None)
    at_ns: float | None = AT
    rate: float | None = RATE
    seed: int = SEED
    for_ns: float | None = length("The length of a slowdown.")
    slower: float | None = share_left(
        "The share of their speed at which kernels go on. Without the key, the GPU is dead."
    )


def failures_of_gpus(entries: Sequence[GpuFailure], network: Network, place: Section) -> list[Failure]:
    """Return the failures of a system file, one for each GPU or node."""
    failures = [failure for entry in entries for failure in _failures(entry, network)]
    slow = [replace(failure, links=failure.ranks) for failure in failures if not failure.is_dead]
    check_shares(place, slow, "the speed of a GPU")
    return failures


def _failures(entry: GpuFailure, network: Network) -> Iterator[Failure]:
    section = entry.section
    if (entry.gpu is None) == (entry.node is None):
        cause = f"the entry names {'no part' if entry.gpu is None else '2 parts'}"
        raise section.fault(cause, 'give "gpu" or "node"')
    check_times(section, entry.at_ns, entry.rate, entry.for_ns)
    what, text = (GPU, entry.gpu) if entry.gpu is not None else (NODE, entry.node)
    if entry.slower is None and entry.for_ns is not None:
        raise no_repair(section, what)
    size = 1 if what == GPU else network.grid.dimensions[0].npus
    assert text is not None
    for number_of_part in _numbers(section, what, text, -(-network.ranks // size)):
        name = str(number_of_part)
        begin = number_of_part * size
        ranks = tuple(range(begin, min(begin + size, network.ranks)))
        at = first_failure(entry.rate, entry.seed, name) if entry.rate is not None else entry.at_ns or 0.0
        until = None if entry.for_ns is None else int(at) + int(entry.for_ns)
        yield Failure(what, name, int(at), until, entry.slower or 0.0, (), ranks)


def _numbers(section: Section, what: str, text: str, count_of_parts: int) -> list[int]:
    try:
        numbers = [each for piece in parse_ranks(text) for each in piece]
    except UsageError as error:
        raise section.fault(f'key "{what}": {error.cause}', error.remedy, key=what) from None
    if max(numbers) >= count_of_parts:
        raise section.fault(f'key "{what}" is {text}', f"allowed: 0 to {count_of_parts - 1}", key=what)
    return numbers


def with_dead_gpus(network: Network, failures: Sequence[Failure]) -> Network:
    """Return the network in which the links of GPUs that die are dead from then on."""
    if not failures:
        return network
    dead = [replace(each, links=links_of_ranks(network, each.ranks)) for each in failures]
    network = replace(network, failures=(*network.failures, *dead))
    if not isinstance(network.fabric, GraphFabric):
        return network
    failing = tuple(failure.links for failure in network.failures)
    return replace(network, fabric=replace(network.fabric, failing=failing))
