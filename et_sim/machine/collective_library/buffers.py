"""Buffers of a collective library, which bound how far a sender runs ahead of a receiver that is late.

Figures of NCCL (NVIDIA/nccl, commit 5067397c, Apache-2.0): a connection of a channel has NCCL_STEPS slots (8,
src/include/device.h); NCCL_BUFFSIZE is 4 MiB with Simple, and with LL and LL128 follows from the lines of a
thread (src/init.cc); sends and receives fill slots by NCCL_P2P_NVL_CHUNKSIZE and NCCL_P2P_NET_CHUNKSIZE, over
two channels for each card between nodes. Sizes count bytes as they cross the wire, flags included. RCCL has
the same structure.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from et_sim.documents.kinds import count, flag, size
from et_sim.machine.collective_library.constants import NVLS, NVLS_TREE, LibraryProtocol
from et_sim.machine.collective_library.engines import OF_ENGINES

KIB = 1024
number = partial(count, minimum=0, maximum=1 << 16)
slot = partial(size, minimum=0, maximum=1 << 40)


class ConnectionSlots(Struct, frozen=True):
    """The slots of a connection, their bytes by protocol, and the channels of sends and receives."""

    slots: int = number("Slots that a channel has for each connection.", 8)
    slot_ll: int = slot("Bytes of a slot with LL, flags included.", 64 * KIB)
    slot_ll128: int = slot("Bytes of a slot with LL128, flags included.", 600 * KIB)
    slot_simple: int = slot("Bytes of a slot with Simple.", 512 * KIB)
    send_slot_within: int = slot("Bytes of a slot of sends within a node.", 512 * KIB)
    send_slot_between: int = slot("Bytes of a slot of sends between nodes.", 128 * KIB)
    send_channels_within: int = number("Channels of a send within a node.", 32)
    send_channels_between: int = number("Channels of a send between nodes.", 2)
    direct: bool = flag(
        "Transfers go directly into the user's buffers, so no sender runs ahead of its receiver.",
        False,
    )

    def of_collective(self, algorithm: str, protocol: LibraryProtocol, channels: int) -> int:
        """Return the bytes that a member can send to the next one before that joins the collective."""
        if self.direct or algorithm in (NVLS, NVLS_TREE, *OF_ENGINES):
            return 0
        return self.slots * channels * (self.slot_ll, self.slot_ll128, self.slot_simple)[protocol]

    def of_sends(self, *, within: bool) -> int:
        """Return the bytes that a rank can send to another one before that posts a receive."""
        if self.direct:
            return 0
        if within:
            return self.slots * self.send_channels_within * self.send_slot_within
        return self.slots * self.send_channels_between * self.send_slot_between
