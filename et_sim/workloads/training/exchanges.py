"""Exchanges of tokens between a router and the experts, and the kernels that order them.

Forward, the way of a rank's tokens to the experts is a list of legs: copies of rows, and exchanges. The way
back is the reversed list, with sums in place of copies. Gradients take the opposite way each time. On the way
to the experts rows may have fewer bits; sums come back as values.

A leg turns `few` rows into `many`: a row is copied for each of its experts, nodes or ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from et_sim.trace import shapes
from et_sim.workloads.exchange_names import ALL_TO_ALL, DEEPEP
from et_sim.workloads.kernels import Kernel, cast, passing, stored_bytes
from et_sim.workloads.training.expert_plan import EXPERT, EXPERT_NODE, EXPERT_RAIL, EXPERT_TENSOR
from et_sim.workloads.training.parts import ModelPart, Passing, Shared, ToExperts, Transfer

WEIGHT_BYTES, SCORE_BYTES, CHOICE_BYTES = 4, 4, 1  # a copy has a weight; a score has a score and a choice
NUMBER_BYTES = 8  # of the tokens for an expert
# Numbers of fused and of unfused kernels. Unfused ones are: cast, softmax, top k, two tables filled with
# zeros and then scattered to, and sums of both for the loss that balances experts; a mask sorted, its indices
# selected, rows taken; weights multiplied, sums filled with zeros, rows added.
ROUTER_LAUNCHES, ROUTER_BACK_LAUNCHES, INDEX_LAUNCHES = (2, 10), (1, 5), (3, 4)


class Spread(Struct, frozen=True):
    """Rows of a rank for several places."""

    places: int
    total: int
    each: tuple[int, ...] = ()  # for each place, if they differ

    @staticmethod
    def of(each: tuple[int, ...]) -> Spread:
        """Return the spread of given rows for each place."""
        return Spread(len(each), sum(each), each)

    def arriving(self, place: int) -> int:
        """Return the rows that arrive at a place if all ranks send the same numbers."""
        return self.each[place] * self.places if self.each else self.total

    def returning(self, place: int) -> Spread:
        """Return the rows that a place sends back to each."""
        return Spread.of((self.each[place],) * self.places) if self.each else self

    def within(self, first: int, places: int) -> Spread:
        """Return the rows for neighbouring places from all ranks that send through one of them."""
        if not self.each:
            return Spread(places, self.total)
        senders = self.places // places
        return Spread.of(tuple(senders * rows for rows in self.each[first : first + places]))


class Routed(Struct, frozen=True):
    """The tokens of a rank in a layer of experts."""

    tokens: int
    sent: int  # copies, one for each expert of a token
    here: int  # copies that the experts of the rank get
    experts: int
    local: int  # experts of the rank
    hidden: int
    value_bytes: int
    dispatch: str  # datatype of tokens sent to experts; empty: that of values
    kind: str  # of exchange
    is_fused: bool
    counting: int  # kernels that count the tokens for each expert; 0: ranks exchange no numbers
    place: int  # among the ranks with other experts
    within: int  # such ranks of a node
    to_places: Spread  # to each of these ranks; copies in an all-to-all
    to_nodes: Spread  # to each node that has experts

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a token."""
        return self.hidden * self.value_bytes

    @property
    def sent_row_bytes(self) -> int:
        """Return the bytes of a token on the way to an expert."""
        return stored_bytes(self.hidden, self.dispatch) if self.dispatch else self.row_bytes


class _Copies(Struct, frozen=True):
    """A leg that copies rows, and adds them on the way back."""

    name: str
    few: int
    many: int
    has_index: bool = False  # a kernel computes the index of rows before

    def part(self, routed: Routed, *, is_outward: bool) -> Passing:
        """Return the kernels of this leg."""
        out = self._kernel(routed, routed.sent_row_bytes, is_sum=False)
        back = self._kernel(routed, routed.row_bytes, is_sum=True)
        if is_outward:
            return Passing((*self._index(routed), out), (back,))
        return Passing((back,), (out,))

    def _kernel(self, routed: Routed, row_bytes: int, *, is_sum: bool) -> Kernel:
        """Return the kernel of copies or sums; fused, it reads and writes each row once."""
        if routed.is_fused:
            moved, launches = self.few + self.many, 1
        elif is_sum:
            moved, launches = 3 * self.many + 3 * self.few, 3
        else:
            moved, launches = 2 * self.many, 1
        values = max(self.many, 1) * routed.hidden
        name = f"{self.name} {'sum' if is_sum else 'copies'}"
        return Kernel(
            name, values, max(moved, 1) * row_bytes, shapes.elementwise(values, 1, 1), launches=launches
        )

    def _index(self, routed: Routed) -> tuple[Kernel, ...]:
        """Return the kernel that computes the destination of each row from the router's choices."""
        if not self.has_index:
            return ()
        values, launches = routed.tokens * routed.experts, INDEX_LAUNCHES[not routed.is_fused]
        return (passing(f"{self.name} index", values, CHOICE_BYTES + 2 * SCORE_BYTES, 1, launches),)


class _Way(Struct, frozen=True):
    """Rows sent along an axis to each of its places, and rows that come back."""

    over: str
    out: Spread
    back: Spread

    def transfer(self, row_bytes: int, *, is_outward: bool) -> Transfer:
        """Return the all-to-all of the rows."""
        rows = self.out if is_outward else self.back
        return Transfer(self.over, rows.total * row_bytes, tuple(row * row_bytes for row in rows.each))


class _Exchange(Struct, frozen=True):
    """A leg that sends rows along one axis, or along several at once."""

    ways: tuple[_Way, ...]

    def part(self, routed: Routed, *, is_outward: bool) -> ToExperts:
        """Return the exchange of this leg."""
        out, back = (
            tuple(way.transfer(size, is_outward=outward) for way in self.ways)
            for size, outward in ((routed.sent_row_bytes, True), (routed.row_bytes, False))
        )
        if is_outward:
            return ToExperts("to experts", out, back)
        return ToExperts("from experts", back, out)


def _legs(routed: Routed) -> list[_Copies | _Exchange]:
    """Return the legs from a rank's tokens to the experts."""
    places, place = routed.to_places, routed.place
    is_all = routed.kind == ALL_TO_ALL
    by_expert = _Copies("sorting by expert", places.arriving(place), routed.here, has_index=not is_all)
    if is_all:
        every = _Way(EXPERT, places, places.returning(place))
        sorting = _Copies("sorting", routed.tokens, routed.sent, has_index=True)
        return [sorting, _Exchange((every,)), *([by_expert] if routed.local > 1 else [])]
    ways: list[_Way] = []
    node, at = divmod(place, routed.within)
    if routed.to_nodes.places > 1:
        ways.append(_Way(EXPERT_RAIL, routed.to_nodes, routed.to_nodes.returning(node)))
    if routed.within > 1:
        of_node = places.within(place - at, routed.within)
        ways.append(_Way(EXPERT_NODE, of_node, of_node.returning(at)))
    if routed.kind == DEEPEP:
        return [_Exchange(tuple(ways)), by_expert]
    legs: list[_Copies | _Exchange] = []
    held = routed.tokens
    for way in ways:
        name = "sorting by node" if way.over == EXPERT_RAIL else "sorting by rank"
        legs += [_Copies(name, held, way.out.total, has_index=True), _Exchange((way,))]
        held = way.back.total
    return [*legs, by_expert]


def legs_there(routed: Routed) -> tuple[ModelPart, ...]:
    """Return the exchanges and copies before the experts, without the router."""
    return tuple(leg.part(routed, is_outward=True) for leg in _legs(routed))


def legs_back(routed: Routed) -> tuple[ModelPart, ...]:
    """Return the exchanges and sums after the experts."""
    return tuple(leg.part(routed, is_outward=False) for leg in reversed(_legs(routed)))


def to_experts(routed: Routed, ranks: int) -> tuple[ModelPart, ...]:
    """Return the parts before the experts, which are spread over a number of ranks."""
    parts: list[ModelPart] = [_router(routed)]
    if routed.dispatch:
        parts.append(Passing((_cast(routed, "tokens"),), ()))
    if ranks == 1:
        return (*parts, _Copies("sorting", routed.tokens, routed.sent, True).part(routed, is_outward=True))
    if routed.kind == ALL_TO_ALL and routed.counting:
        parts += _numbers(routed)
    for leg in _legs(routed):
        parts.append(leg.part(routed, is_outward=True))
        if routed.kind == ALL_TO_ALL and isinstance(leg, _Exchange) and routed.is_fused:
            out, back = (leg.ways[0].transfer(WEIGHT_BYTES, is_outward=outward) for outward in (True, False))
            parts.append(ToExperts("weights to experts", (out,), (back,)))
    return tuple(parts)


def _numbers(routed: Routed) -> tuple[ModelPart, ModelPart]:
    """Return the count of the tokens for each expert, and the exchange of these numbers."""
    count = passing("tokens counted", routed.tokens * routed.experts, CHOICE_BYTES, 1, routed.counting)
    gathered = Transfer(EXPERT, routed.experts * NUMBER_BYTES)
    return Passing((count,), ()), ToExperts("numbers of tokens", (gathered,), (), kind="all_gather")


def from_experts(routed: Routed, ranks: int) -> tuple[ModelPart, ...]:
    """Return the parts after the experts."""
    if ranks == 1:
        return (_Copies("sorting", routed.tokens, routed.sent).part(routed, is_outward=False),)
    parts = list(legs_back(routed))
    if routed.dispatch:
        parts.append(Passing((), (_cast(routed, "gradients"),)))
    return tuple(parts)


def shared_by(routed: Routed, ranks: int) -> tuple[tuple[Shared, ...], tuple[Shared, ...]]:
    """Return the exchanges of ranks that share every expert: gathers of tokens, and sums of outputs."""
    if ranks == 1:
        return (), ()
    rows = routed.here
    out, back = rows * routed.sent_row_bytes, rows * routed.row_bytes * ranks
    return (Shared("experts", EXPERT_TENSOR, out, back, gathers=True),), (
        Shared("experts", EXPERT_TENSOR, out, back, gathers=False),
    )


def widened(routed: Routed, ranks: int, products: str) -> tuple[tuple[Passing, ...], tuple[Passing, ...]]:
    """Return the casts of tokens, and of gradients, back to values, where products have another datatype."""
    if routed.dispatch in ("", products):
        return (), ()
    rows = routed.here * ranks
    values, moved = rows * routed.hidden, rows * (routed.sent_row_bytes + routed.row_bytes)
    tokens, gradients = (
        Kernel(f"sent {tensor} widened", values, moved, shapes.elementwise(values, 1, 1))
        for tensor in ("tokens", "gradients")
    )
    return (Passing((tokens,), ()),), (Passing((), (gradients,)),)


def _cast(routed: Routed, tensor: str) -> Kernel:
    values = routed.tokens * routed.hidden
    return cast(f"sent {tensor} cast", values, routed.value_bytes, routed.dispatch, 1)


def _router(routed: Routed) -> Passing:
    """Return the router: scores of all experts, the choice among them, and the loss that balances experts.

    A fused kernel reads scores once and writes weights and choices; the loss reads both. Backward, gradients
    of weights and the weights give gradients of scores.
    """
    scores, size = routed.tokens * routed.experts, routed.value_bytes
    launches = ROUTER_LAUNCHES[not routed.is_fused], ROUTER_BACK_LAUNCHES[not routed.is_fused]
    chosen = SCORE_BYTES + CHOICE_BYTES
    forward, backward = size + 2 * chosen, 2 * SCORE_BYTES + size
    if not routed.is_fused:
        forward, backward = size + 3 * SCORE_BYTES + 2 * chosen, size + 4 * SCORE_BYTES
    return Passing(
        (passing("choice of experts", scores, forward, 8, launches[0]),),
        (passing("choice of experts", scores, backward, 4, launches[1]),),
    )


def counted(rows: Sequence[int], multiple: int) -> tuple[int, ...]:
    """Return the rows of each expert, padded to a multiple."""
    return tuple(-(-count // multiple) * multiple for count in rows)
