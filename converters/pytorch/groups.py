"""Process groups: the members from both recordings, and the resolution of communications.

Groups keep PyTorch's names ("0" is the default group: all ranks). A communication without a group gets one if
only one fits, by its ranks or by its size. Others are counted and never guessed: such a node names no group,
which a simulation takes as all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from converters.pytorch.columns import ABSENT, DeviceTrace, HostTrace, ProcessGroup
from converters.pytorch.communication import UNKNOWN, Communication
from converters.pytorch.graph import EventTally

DEFAULT = "0"


class RankGroups(Struct):
    """Members by name, of the groups that this rank is in; () means all ranks."""

    rank: int
    world: int  # UNKNOWN if neither recording has it
    tally: EventTally
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def resolve(self, communication: Communication) -> Communication:
        """Return the communication with the name of its group, and its root or peer as a global rank."""
        name = self._name_of(communication)
        if name and name not in self.members:
            if communication.group_ranks:
                self.members[name] = communication.group_ranks
            elif communication.group_size == self.world and self.world != UNKNOWN:
                self.members[name] = ()
            elif name != DEFAULT:
                self.tally.count(f"of group {name}, whose members are not in the trace")
        resolved = replace(communication, group="" if self._has_all_ranks(name) else name)
        if communication.peer == UNKNOWN and communication.root != UNKNOWN:
            return replace(resolved, peer=self.global_rank(name, communication.root))
        if communication.peer == UNKNOWN and communication.operation.is_message:
            self.tally.count("messages without a peer in the trace (a simulation refuses them)")
        return resolved

    def global_rank(self, name: str, member: int) -> int:
        """Return the global rank of member number `member` of a group."""
        ranks = self.members.get(name, ())
        return ranks[member] if member < len(ranks) else member

    def is_alone(self, communication: Communication) -> bool:
        """Return whether a communication is of one rank with itself, which moves nothing."""
        ranks = self.members.get(communication.group, communication.group_ranks)
        size = len(ranks) or (communication.group_size if communication.group_size > 0 else self.world)
        return size == 1 and not communication.operation.is_message

    def described(self) -> dict[str, tuple[int, ...]]:
        """Return the groups for the converted trace: those that are not of all ranks."""
        return {name: ranks for name, ranks in self.members.items() if not self._has_all_ranks(name)}

    def _has_all_ranks(self, name: str) -> bool:
        ranks = self.members.get(name, ())
        return not name or name == DEFAULT or (name in self.members and len(ranks) in (0, self.world))

    def _name_of(self, communication: Communication) -> str:
        if communication.group:
            return communication.group
        if communication.group_ranks:
            fitting = [name for name, ranks in self.members.items() if ranks == communication.group_ranks]
            if fitting:
                return fitting[0]
            if len(communication.group_ranks) != self.world:
                return "ranks " + " ".join(map(str, communication.group_ranks))
        if communication.group_size in (UNKNOWN, self.world):
            if len(self._distinct()) > 1 and communication.group_size == UNKNOWN:
                self.tally.count("of a group that the trace does not name, taken as all ranks")
            return DEFAULT
        fitting = [name for name, ranks in self._distinct().items() if len(ranks) == communication.group_size]
        if len(fitting) == 1:
            return fitting[0]
        self.tally.count(
            f"of a group of {communication.group_size} that the trace does not name, taken as all ranks"
        )
        return DEFAULT

    def _distinct(self) -> dict[str, tuple[int, ...]]:
        """Return one name for each set of members that holds this rank."""
        names: dict[tuple[int, ...], str] = {}
        for name, ranks in self.members.items():
            if self.rank in ranks or not ranks or self.rank == ABSENT:
                names.setdefault(ranks if len(ranks) != self.world else (), name)
        return {name: ranks for ranks, name in names.items()}


def collect_groups(host: HostTrace | None, device: DeviceTrace | None, tally: EventTally) -> RankGroups:
    """Return the groups that both recordings describe."""
    rank = next((t.rank for t in (device, host) if t is not None and t.rank != ABSENT), ABSENT)
    described = [*(group for trace in (device, host) if trace is not None for group in trace.groups)]
    world = device.world_size if device is not None and device.world_size != ABSENT else _world(described)
    groups = RankGroups(rank, world, tally)
    for group in described:
        ranks = tuple(group.ranks)
        if not ranks and group.size not in (ABSENT, world) and world != UNKNOWN:
            continue  # a group of other ranks, of which only the size is recorded
        if not groups.members.get(group.name):
            groups.members[group.name] = ranks
    return groups


def learn_world(groups: RankGroups, largest: int) -> None:
    """Take the largest group, of this size, as all ranks, if the number of ranks is not recorded."""
    if groups.world == UNKNOWN and largest > 0:
        groups.world = largest
        remark = f"the number of ranks is not recorded: taken as {largest}, the size of the largest group"
        groups.tally.count(remark)


def _world(described: Iterable[ProcessGroup]) -> int:
    """Return the size of the default group, or UNKNOWN."""
    sizes = [group.size for group in described if group.name == DEFAULT and group.size != ABSENT]
    return max(sizes, default=UNKNOWN)
