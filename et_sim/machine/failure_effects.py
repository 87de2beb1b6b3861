"""Checks of failures and of the rules of senders: keys that change nothing are refused or warned of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from et_sim.basics.units import format_ns
from et_sim.documents.keys import Remarks, Section
from et_sim.machine.graph import SWITCH
from et_sim.machine.networks import Failure, GraphFabric, Network
from et_sim.machine.transports import Recovery

LEAST_SHARE = 1e-6  # of a bandwidth; far below, the rates of several ways are lost in rounding
ROUNDED = 1 - 1e-9  # of a product


def are_ports(fabric: GraphFabric, links: Any) -> Any:
    """Return which links of a graph are ports: they begin or end at an NPU or a NIC.

    NPUs that forward have no port of their own.
    """
    graph, rows = fabric.graph, np.asarray(links, np.int64)
    if fabric.npus_forward:
        return np.zeros(len(rows), bool)
    return (graph.kinds[graph.sources[rows]] != SWITCH) | (graph.kinds[graph.targets[rows]] != SWITCH)


def check_shares(section: Section, failures: Sequence[Failure], of: str = "the bandwidth of a link") -> None:
    """Refuse several failures that leave less than the least share of something."""
    of_link: dict[Any, list[Failure]] = {}
    for failure in failures:
        for link in () if failure.is_dead else failure.links:
            of_link.setdefault(link, []).append(failure)
    for several in of_link.values():
        for later in several if len(several) > 1 else ():
            left = math.prod(each.left for each in several if each.at_ns <= later.at_ns < _end(each))
            if left < LEAST_SHARE * ROUNDED:
                cause = f'failures of {later.text} with "slower" leave {left:g} of {of}'
                cause += f" from {format_ns(later.at_ns)} on, since their shares are multiplied"
                raise section.fault(cause, f"leave at least {LEAST_SHARE:f} in all", key="failures")


def _end(failure: Failure) -> float:
    return math.inf if failure.until_ns is None else failure.until_ns


def check_recovery(section: Section, recovery: Recovery, network: Network, remarks: Remarks) -> None:
    """Refuse rules of senders that never apply; warn of those that do not apply to these failures."""
    dead = [failure for failure in network.failures if failure.is_dead]
    if not dead:
        cause = 'key "recovery" has no effect: with "slower", links are never dead'
        raise section.fault(cause, 'leave it out, or leave "slower" out of a failure')
    if recovery.detection_ns < 1:
        raise section.fault('key "detection" is less than 1 ns', "give the time of a try, such as 4.3s")
    for key in ("probe", "fail-back"):
        if key in section.content and not recovery.fail_over:
            remedy = f'give "fail-over": true, or leave "{key}" out'
            raise section.fault(f'key "{key}" has no effect without "fail-over"', remedy, key=key)
    if recovery.fail_over:
        _check_fail_over(section, recovery, network, dead, remarks)
    _warn_of_limits(section, recovery, remarks)


def _check_fail_over(
    section: Section, recovery: Recovery, network: Network, dead: Iterable[Failure], remarks: Remarks
) -> None:
    fabric = network.fabric
    if not isinstance(fabric, GraphFabric):
        cause = 'key "fail-over" has no effect: in a network of dimensions, no other port leads to an NPU'
        raise section.fault(cause, "leave it out, or describe a graph with two ports")
    of_ports = [failure for failure in dead if are_ports(fabric, failure.links).any()]
    if not of_ports:
        cause = 'key "fail-over" has no effect: no failure takes a port of an NPU or NIC'
        raise section.fault(cause, "leave it out, since switches lead around other dead links")
    spent_ns = recovery.given_up_ns + int(recovery.probe_ns)
    late = [failure for failure in of_ports if failure.at_ns + spent_ns < _end(failure)]
    if not late:
        text = f"no effect: all ports are repaired before another port is taken, after {format_ns(spent_ns)}"
        remarks.warn(section.at("fail-over"), "fail-over", text)
    elif "fail-back" in section.content and all(failure.until_ns is None for failure in late):
        text = "no effect: no port that messages have left is repaired"
        remarks.warn(section.at("fail-back"), "fail-back", text)


def _warn_of_limits(section: Section, recovery: Recovery, remarks: Remarks) -> None:
    """Warn of a watchdog after the last try, or of tries after the watchdog."""
    last_ns = recovery.last_try_ns
    if "watchdog" in section.content and recovery.watchdog_ns > last_ns:
        text = f"no effect: the last try is after {format_ns(last_ns)}"
        remarks.warn(section.at("watchdog"), "watchdog", text)
    most = int(recovery.watchdog_ns // recovery.detection_ns)
    if "retries" in section.content and recovery.retries > most:
        text = f"only {most} of {recovery.retries} are made before the watchdog"
        remarks.warn(section.at("retries"), "retries", text)
