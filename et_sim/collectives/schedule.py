"""The point-to-point schedule of a program: the messages between its members, and their order.

A program is executed by its own rules (transfers, credits, packets; or a tree's receiving and forwarding),
but without time: in *rounds*, where every message of one round has arrived before the next. Members start
together, so a step program is executed once, for all of them.

Invariant: within a round, rows are in ascending step, then source. `after_received` is the program's true
rule, not only that of the rounds: a member sends the message once it has received this many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.collectives.program import Bytes, Distances, Flags, Peer, StepProgram
from et_sim.collectives.trees import NO_MEMBER, TreeProgram

UP, DOWN = 0, 1  # the two steps of a tree
Counts = npt.NDArray[np.int32]


class MemberSteps(Struct, frozen=True, eq=False):
    """The steps of every member of a step program, one row a step."""

    round: Counts
    distance: Distances
    bytes: Bytes
    after_received: Counts
    charged: Flags

    def __len__(self) -> int:
        return len(self.round)


class Schedule(Struct, frozen=True, eq=False):
    """All messages of all members, one row a message. Members are named by their position."""

    members: int
    step: Counts  # index of the message among the sender's; in a tree: UP or DOWN
    round: Counts
    source: Counts
    target: Counts
    bytes: Bytes
    after_received: Counts  # messages that the source must have received before
    charged: Flags  # receiving it costs the target a local reduction

    def __len__(self) -> int:
        return len(self.step)

    @property
    def rounds(self) -> int:
        """Return the number of rounds."""
        return int(self.round.max(initial=-1)) + 1


def expand(program: StepProgram | TreeProgram, *, second_tree: bool = False) -> Schedule:
    """Return all messages of a program; a tree program has two trees, used by alternating chunks."""
    if isinstance(program, TreeProgram):
        return _tree_schedule(program, second_tree)
    steps = member_steps(program)
    count, members = len(steps), program.members
    source = np.tile(np.arange(members, dtype=np.int32), count)
    each: dict[str, Any] = {
        name: np.repeat(getattr(steps, name), members)
        for name in ("round", "bytes", "after_received", "charged")
    }
    distance = np.repeat(steps.distance, members)
    return Schedule(
        members=members,
        step=np.repeat(np.arange(count, dtype=np.int32), members),
        source=source,
        target=peer_of(program.peer, members, source, distance),
        **each,
    )


def peer_of(peer: Peer, members: int, position: Counts, distance: Distances) -> Counts:
    """Return the targets of members in the clockwise direction."""
    ahead = ((position // distance) % 2 == 0) | (peer is not Peer.PAIR)
    return np.asarray((position + np.where(ahead, distance, -distance)) % members, np.int32)


def member_steps(program: StepProgram) -> MemberSteps:
    """Return the steps of one member, while all others do the same."""
    rounds, after = _spend_all_transfers(program)
    step = np.arange(program.sends)
    row = step % len(program.distance)
    made = (program.start_transfers + step) % len(program.transfers.reduces)
    return MemberSteps(
        round=rounds,
        distance=program.distance[row],
        bytes=program.message_bytes[row],
        after_received=after,
        charged=program.transfers.reduces[made],
    )


def _spend_all_transfers(program: StepProgram) -> tuple[Counts, Counts]:
    """Return the round of every step, and the number of messages it waits for."""
    rounds, after = np.zeros(program.sends, np.int32), np.zeros(program.sends, np.int32)
    sent = received = credit = spent = number = 0
    made = program.start_transfers
    while spent < made:
        sent_before = sent
        for transfer in range(spent, made):
            credit += 1
            needed = max(transfer + 1 - program.start_transfers, 0)
            burst = 1
            if program.half > 0 and program.sends - sent <= program.half:
                if received < program.half:
                    continue
                needed, burst = max(needed, program.half), program.start_transfers
            last = min(sent + min(burst, credit), made, program.sends)
            rounds[sent:last], after[sent:last] = number, needed
            credit -= last - sent
            sent = last
        spent = made
        received += sent - sent_before
        made += sent - sent_before
        number += 1
    return rounds, after


def _tree_schedule(program: TreeProgram, second_tree: bool) -> Schedule:
    """Return the schedule up to the root, then down again, or one of the two.

    On the way up every member receives from all its children before it sends; on the way down, from its
    parent.
    """
    chosen = slice(program.members, None) if second_tree else slice(program.members)
    parent = program.parent[chosen].tolist()
    children = [
        [child for child in pair if child != NO_MEMBER]
        for pair in zip(program.left[chosen].tolist(), program.right[chosen].tolist(), strict=True)
    ]
    top_down = [parent.index(NO_MEMBER)]
    for position in top_down:  # grows while it is walked
        top_down += children[position]
    ready = [0] * program.members  # the round in which a member can send up, then down
    rows: list[tuple[int, int, int, int, int]] = []
    if program.goes_up:
        for position in reversed(top_down):
            ready[position] = max((ready[child] + 1 for child in children[position]), default=0)
        rows += [
            (ready[position], UP, position, parent[position], len(children[position]))
            for position in top_down[1:]
        ]
    if program.goes_down:
        for position in top_down:
            if parent[position] != NO_MEMBER:
                ready[position] = ready[parent[position]] + 1
            received = len(children[position]) * program.goes_up + (parent[position] != NO_MEMBER)
            rows += [(ready[position], DOWN, position, child, received) for child in children[position]]
    columns = np.array(sorted(rows), np.int32).reshape(-1, 5).T
    number, step, source, target, after = columns
    is_leaf = np.array([not below for below in children], np.bool_)
    up = step == UP
    return Schedule(
        members=program.members,
        step=step,
        round=number,
        source=source,
        target=target,
        bytes=np.where(up, program.up_bytes[chosen][source], program.down_bytes[chosen][target]),
        after_received=after,
        charged=np.where(up, program.reduces_up, program.reduces_down & ~is_leaf[target]),
    )
