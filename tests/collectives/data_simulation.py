"""Simulation of the data that moves along a schedule: contributions of members to pieces.

Members are executed in a random order, as if some were fast and others slow, by the rules of the schedule: a
member sends its next message once it has received `after_received` messages. In a step program it
receives the message of a step once it has sent its own of that step; in a tree, it receives downward messages
after its last upward one. Adding a contribution twice, and sending a missing piece are errors.
"""

from __future__ import annotations

import random

from et_sim.collectives.movement import REDUCED, ROOT_BEGINS, MessagePieces, Movement
from et_sim.collectives.program import PhaseOperation
from et_sim.collectives.schedule import DOWN, UP, Schedule

Pieces = dict[int, frozenset[int]]


class Member:
    """The pieces of one member, and its position in its own list of messages."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.to_send: list[tuple[int, int, int]] = []  # step, target, number of messages received before
        self.sent = 0
        self.received = 0
        self.ups = 0  # number of its messages up a tree; they come first
        self.arrived: list[tuple[int, bool, Pieces]] = []  # step, to be added, data

    def can_send(self) -> bool:
        return self.sent < len(self.to_send) and self.received >= self.to_send[self.sent][2]

    def takable(self, is_tree: bool) -> list[int]:
        """Return the positions of arrived messages that match a posted receive."""
        sent = self.sent
        return [
            place
            for place, (step, _, _) in enumerate(self.arrived)
            if (step != DOWN or sent >= self.ups if is_tree else sent > step)
        ]

    def take(self, place: int) -> None:
        _, adds, data = self.arrived.pop(place)
        self.received += 1
        for piece, contributions in data.items():
            have = self.pieces.get(piece, frozenset()) if adds else frozenset()
            assert not have & contributions, f"piece {piece} would count {sorted(have & contributions)} twice"
            self.pieces[piece] = have | contributions

    def leaving(self, load: MessagePieces) -> Pieces:
        missing = [piece for piece in load.pieces if piece not in self.pieces]
        assert not missing, f"pieces {missing} would be sent by a member that does not have them"
        return {piece: self.pieces[piece] for piece in load.pieces}


def move(schedule: Schedule, moved: Movement, seed: int, *, is_tree: bool = False) -> list[Pieces]:
    """Return the pieces of every member when no member can go on."""
    members = [
        Member({piece: frozenset([position]) for piece in moved.before(position)})
        for position in range(schedule.members)
    ]
    columns = (schedule.source, schedule.step, schedule.target, schedule.after_received)
    for source, *message in zip(*(column.tolist() for column in columns), strict=True):
        members[source].to_send.append(tuple(message))
        members[source].ups += is_tree and message[0] == UP
    chance = random.Random(seed)
    active = list(range(schedule.members))
    while active:
        position = chance.choice(active)
        member = members[position]
        takable = member.takable(is_tree)
        if takable and (not member.can_send() or chance.random() < 0.5):
            member.take(chance.choice(takable))
        elif member.can_send():
            step, target, _ = member.to_send[member.sent]
            load = moved.load(position, target, step)
            members[target].arrived.append((step, load.reduces, member.leaving(load)))
            member.sent += 1
            active += [target] if target not in active else []
        else:
            active.remove(position)
    assert all(not member.arrived and member.sent == len(member.to_send) for member in members)
    return [member.pieces for member in members]


def contributors(moved: Movement, piece: int) -> range:
    """Return the members whose contributions make up a piece at the end."""
    if moved.operation in REDUCED:
        return range(moved.members)
    if moved.operation in ROOT_BEGINS:
        return range(moved.root, moved.root + 1)
    origin = piece // moved.members if moved.operation is PhaseOperation.ALL_TO_ALL else piece
    return range(origin, origin + 1)


def assert_promise_kept(ended: list[Pieces], moved: Movement) -> None:
    """Check that every member has all contributions to the pieces that the collective gives it."""
    for position, pieces in enumerate(ended):
        for piece in moved.after(position):
            assert pieces.get(piece) == frozenset(contributors(moved, piece)), (position, piece)
