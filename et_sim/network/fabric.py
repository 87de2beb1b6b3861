"""Fabrics: what messages cross, with one routing rule each for network models, observers and folding.

A message crosses a fabric leg by leg. `next_leg` says which comes next, and the other functions here say what
it costs; each stands for the function of that name in the module of the fabric's tables (`grid`, `levels`).

Not here: what collectives run along (`machine.model`), and who has to wait for whom (the network models).
"""

from __future__ import annotations

from typing import NamedTuple

from et_sim.compiled.tables_by_reference import chosen_by_tables

NONE = -1


class Leg(NamedTuple):
    """A part of a message's way; `row` NONE: the message is there."""

    row: int  # of the dimension or level that it crosses
    at: int  # where it begins, as an NPU
    here: int  # and as a place along `row`
    there: int
    end: int


next_leg = chosen_by_tables("next_leg")  # (fabric, at, target): the Leg that comes next
leg_ns = chosen_by_tables("leg_ns")  # (fabric, leg, size): until `size` bytes are at its end
leaving_ns = chosen_by_tables("leaving_ns")  # (fabric, leg, size): until they have left its beginning
leaving_class = chosen_by_tables("leaving_class")  # (fabric, leg): the class of links that decides that
describe_leg = chosen_by_tables("describe_leg")  # (fabric, run, leg, size): tells the record of causes
describe_leaving = chosen_by_tables("describe_leaving")  # (fabric, run, leg, size): until they have left it
add_serialisation = chosen_by_tables("add_serialisation")  # (fabric, leg, size, longest): by class of links
note_leg = chosen_by_tables("note_leg")  # (fabric, run, leg, begin, size): tells the record of traffic
