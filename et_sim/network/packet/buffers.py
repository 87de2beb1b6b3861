"""Buffers of devices: which packets they keep, when they ask for a pause, and what they mark.

With priority flow control, a device counts what came over each of its links: a reserve of its own, then a
part of what all share, and when that is used up, headroom for what is under way until the sender has heard
that it must wait. A packet is lost only if there is no headroom left. Without, a packet is lost if the queue
of its port is full, or takes more than its part of what is shared.

Not here: the frames that ask for a pause (`forwarding`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.ports import is_sending
from et_sim.network.packet.randomness import drawn


@works_on_tables
def admits(network: Any, packet: Any, port: Any) -> bool:
    """Whether a device keeps a packet that is to leave over a port; if so, it is counted."""
    rules = network.rules[0]
    device = network.devices[port.device]
    if rules.has_pauses == 0:
        return _fits(network, packet, port, device)
    came = network.ports[packet.port]
    size = packet.bytes
    threshold = _threshold(device, came)
    if size + came.in_headroom > came.headroom and size + _shared(rules, came) > threshold:
        return False
    held = came.held + size
    if held <= rules.reserve:
        came.held = held
    elif held - rules.reserve > threshold:
        came.in_headroom += size
    else:
        came.held = held
        device.used += min(size, held - rules.reserve)
    return True


@works_on_tables
def _fits(network: Any, packet: Any, port: Any, device: Any) -> bool:
    rules, size = network.rules[0], packet.bytes
    held = port.waiting + size
    if rules.counts_sending and is_sending(network, port):
        held += port.sending
    if port.packets >= rules.queue_packets or held > rules.queue_bytes:
        return False
    if held > rules.random_from and drawn(network) < rules.random_drop:
        return False
    if port.waiting + size > rules.share * (device.shared - device.used):
        return False
    device.used += size
    return True


@works_on_tables
def releases(network: Any, packet: Any, port: Any) -> None:
    """A packet leaves a device over a port."""
    rules = network.rules[0]
    device = network.devices[port.device]
    if rules.has_pauses == 0:
        device.used -= packet.bytes
        return
    came = network.ports[packet.port]
    from_headroom = min(came.in_headroom, packet.bytes)
    from_shared = min(packet.bytes - from_headroom, _shared(rules, came))
    came.in_headroom -= from_headroom
    came.held -= packet.bytes - from_headroom
    device.used -= from_shared


@works_on_tables
def must_pause(network: Any, came: Any) -> bool:
    """Whether the sending end of a link is to wait from now on."""
    if came.pauses:
        return False
    if came.in_headroom > 0:
        return True
    return bool(_shared(network.rules[0], came) >= _threshold(network.devices[came.to], came))


@works_on_tables
def may_resume(network: Any, came: Any) -> bool:
    """Whether the sending end of a link may go on."""
    rules = network.rules[0]
    if came.pauses == 0 or came.in_headroom > 0:
        return False
    shared = _shared(rules, came)
    return bool(shared == 0 or shared + rules.resume_below <= _threshold(network.devices[came.to], came))


@works_on_tables
def _threshold(device: Any, came: Any) -> int:
    """How much of what is shared may be used by what came over one link."""
    return max(device.shared - device.used, 0) >> came.shift


@works_on_tables
def _shared(rules: Any, came: Any) -> int:
    return max(came.held - rules.reserve, 0)


@works_on_tables
def is_marked(network: Any, port: Any) -> bool:
    """Whether a packet that leaves a queue is marked, by what is left in it."""
    if port.waiting > port.all_marked:
        return True
    if port.waiting <= port.least_marked:
        return False
    part = (port.waiting - port.least_marked) / (port.all_marked - port.least_marked)
    return drawn(network) < port.marked_at_most * part
