"""Routers with credits, cycle by cycle: every router examines all its channels in every cycle.

An oracle for the engine, written independently. Paths, the order of links and the speeds are given.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, NamedTuple


class Wire(NamedTuple):
    """A link."""

    source: int
    target: int
    cycles: int
    latency: int
    order: int


class Rules(NamedTuple):
    """The figures that all routers share."""

    flit: int
    packet: int
    channels: int
    buffer: int
    router: int
    pads: bool = False
    turns_of_flits: bool = False


class Message(NamedTuple):
    """A message with its first cycle, links and bytes."""

    at: int
    way: tuple[int, ...]
    size: int


class Channel:
    """One packet's place in an input of a router."""

    def __init__(self, link: int | None, datelines: int) -> None:
        self.link, self.datelines = link, datelines  # no link: a packet at its source
        self.message = self.flits = self.sent = self.hop = self.begins = 0
        self.arrived: deque[int] = deque()  # when each flit may go on
        self.credit_at: list[int] = []  # when each place given back is known to be free
        self.out: Channel | None = None
        self.free_at = 0
        self.put = 0  # flits sent here


class Fabric:
    """All routers and the messages they carry."""

    def __init__(self, links: list[Wire], rules: Rules, classes: int, messages: list[Message]) -> None:
        self.links, self.rules, self.messages = links, rules, messages
        self.free: dict[tuple[Any, int], deque[Channel]] = {}
        for row in range(len(links)):
            for datelines in range(classes):
                many = [Channel(row, datelines) for _ in range(rules.channels)]
                self.free[row, datelines] = deque(many)
            self.free["npu", row] = deque(Channel(None, 0) for _ in range(rules.channels))
        inputs: defaultdict[int, list[Any]] = defaultdict(list)
        for row, wire in enumerate(links):
            inputs[wire.target].append(row)
        for row, wire in enumerate(links):
            inputs[wire.source].append(("npu", row))
        self.inputs = dict(inputs)
        self.held: defaultdict[Any, list[Channel]] = defaultdict(list)  # by input, in the order of turns
        self.turn: defaultdict[Any, int] = defaultdict(lambda: -1)  # by output
        self.busy_until: defaultdict[Any, int] = defaultdict(int)
        self.waiting: defaultdict[int, deque[list[int]]] = defaultdict(deque)  # by link: message, packets
        self.left = [self.packets(message.size) for message in messages]
        self.ends = [0] * len(messages)
        self.carried = [0] * len(links)  # flits

    def packets(self, size: int) -> int:
        return max(-(-size // self.rules.packet), 1)

    def run(self) -> list[int]:
        """Return the cycle in which each message is at its target."""
        pending = sorted(range(len(self.messages)), key=lambda row: self.messages[row].at)
        cycle = 0
        while any(self.left):
            while pending and self.messages[pending[0]].at <= cycle:
                row = pending.pop(0)
                message = self.messages[row]
                self.waiting[message.way[0]].append([row, self.packets(message.size)])
                self.start(message.way[0], cycle + 1)
            moves = [move for device in sorted(self.inputs) for move in self.chosen(device, cycle)]
            for move in moves:
                self.move(*move, cycle)
            cycle += 1
        return self.ends

    def start(self, link: int, cycle: int) -> None:
        """Give packets at their source the free channels there."""
        while self.waiting[link] and self.free["npu", link]:
            entry = self.waiting[link][0]
            channel = self.free["npu", link].popleft()
            channel.message, channel.hop, channel.sent, channel.out = entry[0], 0, 0, None
            size = self.rules.packet
            if entry[1] == 1 and not self.rules.pads:
                whole = self.messages[entry[0]].size
                size = max(whole - (self.packets(whole) - 1) * size, 1)
            channel.flits, channel.begins = -(-size // self.rules.flit), cycle + self.rules.router
            self.held["npu", link].append(channel)
            entry[1] -= 1
            if entry[1] == 0:
                self.waiting[link].popleft()

    def chosen(self, device: int, cycle: int) -> list[tuple[Any, Any, int, Channel]]:
        """Return (output, input, its number, channel) of every flit that moves."""
        requests: dict[Any, list[tuple[int, Any, Channel]]] = {}
        for number, place in enumerate(self.inputs[device]):
            for channel in self.held[place]:
                if self.can_go_on(channel, cycle):
                    requests.setdefault(self.output(channel), []).append((number, place, channel))
                    break
        return [(out, *self.next_in_turn(out, result)) for out, result in requests.items()]

    def next_in_turn(self, out: Any, found: list[tuple[int, Any, Channel]]) -> tuple[Any, int, Channel]:
        """Return, of the channels that request an output, the first after the last turn."""
        later = [entry for entry in found if entry[0] > self.turn[out]]
        number, place, channel = min(later or found, key=lambda entry: entry[0])
        return place, number, channel

    def output(self, channel: Channel) -> Any:
        way = self.messages[channel.message].way
        return way[channel.hop] if channel.hop < len(way) else ("end", self.links[way[-1]].target)

    def can_go_on(self, channel: Channel, cycle: int) -> bool:
        out = self.output(channel)
        here = channel.begins if channel.link is None else channel.arrived[0] if channel.arrived else None
        if here is None or here > cycle or self.busy_until[out] > cycle:
            return False
        if isinstance(out, tuple):
            return True
        if channel.out is None:
            free = self.free[out, self.datelines(channel, out)]
            return bool(free) and free[0].free_at <= cycle
        known = sum(at <= cycle for at in channel.out.credit_at)
        return channel.out.put - known < self.rules.buffer

    def datelines(self, channel: Channel, out: int) -> int:
        if channel.link is None:
            return 0
        return channel.datelines + (self.links[out].order < self.links[channel.link].order)

    def move(self, out: Any, place: Any, number: int, channel: Channel, cycle: int) -> None:
        """Move one flit."""
        channel.sent += 1
        is_last = channel.sent == channel.flits
        is_over = is_last or self.rules.turns_of_flits
        self.turn[out] = number if is_over else number - 1
        if channel.link is not None:
            channel.arrived.popleft()
            channel.credit_at.append(cycle + 1 + self.links[channel.link].latency)
        if isinstance(out, tuple):
            self.busy_until[out] = cycle + 1
            if is_last:
                self.left[channel.message] -= 1
                self.ends[channel.message] = cycle + 1
        else:
            self.pass_on(out, channel, cycle)
        if is_over:
            self.held[place].remove(channel)
            if not is_last:
                self.held[place].append(channel)
            elif channel.link is None:
                self.free[place].append(channel)
                self.start(place[1], cycle + 1)
            else:
                channel.free_at = cycle + 1 + self.links[channel.link].latency
                self.free[channel.link, channel.datelines].append(channel)

    def pass_on(self, out: int, channel: Channel, cycle: int) -> None:
        wire = self.links[out]
        self.busy_until[out] = cycle + wire.cycles
        self.carried[out] += 1
        if channel.out is None:
            channel.out = self.free[out, self.datelines(channel, out)].popleft()
            after = channel.out
            after.message, after.flits, after.sent, after.hop = (
                channel.message,
                channel.flits,
                0,
                channel.hop + 1,
            )
            after.arrived.clear()
            after.credit_at.clear()
            after.put, after.out = 0, None
            self.held[out].append(after)
        channel.out.put += 1
        channel.out.arrived.append(cycle + wire.cycles + wire.latency + self.rules.router)
