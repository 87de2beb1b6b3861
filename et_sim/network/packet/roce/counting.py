"""Which receive ends when a message is there, if receives are told apart by their bytes alone.

ns-3's frontend counts the bytes that one rank has sent another for a chunk of a collective, and the first
receive ends when so many have come, whichever message they belong to. Where a message overtakes one of the
same size, the two change places: the receive of the first ends with the second, and the other way round.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.phase_key import PHASE_KEY_BITS
from et_sim.engine.state.run import NONE


@works_on_tables
def counts_as(network: Any, messages: Any, row: int) -> None:
    """A flow whose message is there takes that of the first flow which is counted with it."""
    flows, pairs = network.flows, network.transport.pairs
    flow = flows[row]
    if network.transport.rules[0].as_ns3 == 0 or messages[flow.message].kind != STEP:
        return
    other = network.transport.nics[flow.port].head
    while other != NONE and flows[other].begin_ps < flow.begin_ps:
        first = flows[other]
        if first.told == 0 and _is_counted_with(messages[flow.message], messages[first.message]):
            flow.message, first.message = first.message, flow.message
            return
        other = pairs[other].next


@works_on_tables
def _is_counted_with(one: Any, other: Any) -> bool:
    """Whether messages of one rank are of the same size, to the same member, and of the same chunk."""
    return bool(
        other.kind == STEP
        and other.target == one.target
        and other.a == one.a
        and other.c >> PHASE_KEY_BITS == one.c >> PHASE_KEY_BITS
        and other.bytes == one.bytes
    )
