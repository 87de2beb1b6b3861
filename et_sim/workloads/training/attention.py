"""The core of attention: scores of queries and keys, and sums of values by them.

Ranks of the context axis have a share of the tokens each. In a ring, keys and values travel from rank to
rank, and each works on those that it has; backward, their gradients travel along and return to their owner.
With all-to-all exchanges, each rank gets all tokens of a share of the heads, and gives them back.

Fused, it is one kernel, which works scores out again on the way back, and leaves masked ones out. Where
queries see a window of tokens only, keys and values are read once all the same. Not fused, it is products,
softmax (with scale and mask) and dropout, each of which reads and writes all scores, masked ones included.

The share of every rank is taken to be equal, also where later tokens see more of the sequence: that is how
the tokens are dealt out (two stripes each, one from either end).
"""

from __future__ import annotations

from msgspec import Struct

from et_sim.trace import shapes
from et_sim.workloads.kernels import MASK_BYTES, Kernel, passing, product, softmax
from et_sim.workloads.models.model import Attention, Model
from et_sim.workloads.rank import Rank
from et_sim.workloads.recording import Nodes
from et_sim.workloads.training.plan import CONTEXT, Plan
from et_sim.workloads.training.work import Work


def pairs(batch: int, sequence: int, *, causal: bool, window: int = 0, in_chunks: bool = False) -> int:
    """Of a query and a key that it sees: of the last ones of a window, or of its chunk, if there is one."""
    if not causal:
        return batch * sequence * sequence
    if window and in_chunks:
        chunks, rest = divmod(sequence, window)
        return batch * (chunks * (window * (window + 1) // 2) + rest * (rest + 1) // 2)
    seen = min(window or sequence, sequence)
    return batch * (seen * (seen + 1) // 2 + (sequence - seen) * seen)


def products(attention: Attention, *, backward: bool) -> int:
    """How long the vectors are, together, that a head multiplies for a pair in a fused kernel."""
    query, value = attention.query_size, attention.value_size
    return 3 * query + 2 * value if backward else query + value


class Core(Struct, frozen=True):
    """Of one micro-batch, on one rank."""

    attention: Attention
    tensor: int
    context: int
    by_ring: bool
    tokens: int  # of the rank
    pairs: int  # of all ranks of the context axis
    value_bytes: int
    is_recomputed: bool
    is_fused: bool
    drops: bool
    batch: int
    is_causal: bool
    window: int  # tokens that a query sees; 0: all before

    @staticmethod
    def of(model: Model, plan: Plan, window: int) -> Core:
        """That of a layer with such a window."""
        causal = plan.causal and not model.is_encoder
        return Core(
            model.attention,
            plan.tensor,
            plan.context,
            plan.context_attention == "ring",
            plan.batch * model.sequence // plan.context,
            pairs(plan.batch, model.sequence, causal=causal, window=window, in_chunks=model.in_chunks),
            plan.value_bytes,
            plan.recompute == "selective",
            plan.fused_attention,
            model.has_dropout,
            plan.batch,
            causal,
            window if causal else 0,
        )

    @property
    def _heads(self) -> int:
        return self.attention.heads // self.tensor

    @property
    def _key_heads(self) -> int:
        return max(self.attention.key_heads // self.tensor, 1)

    @property
    def _query_values(self) -> int:
        """Of a token's queries."""
        return self._heads * self.attention.query_size

    @property
    def _key_values(self) -> int:
        """Of a token's keys and values."""
        return self._key_heads * (self.attention.query_size + self.attention.value_size)

    @property
    def _outputs(self) -> int:
        return self._heads * self.attention.value_size

    @property
    def key_bytes(self) -> int:
        """Keys and values of the rank's own tokens."""
        return self.tokens * self._key_values * self.value_bytes

    def _kernels(self, share: int, *, backward: bool) -> tuple[Kernel, ...]:
        """A share of the rank's work."""
        if self.is_fused:
            return (self._fused(share, backward=backward),)
        return self._apart_backward(share) if backward else self._apart(share)

    def _of_scores(self, share: int) -> tuple[int, int, int]:
        """Queries and keys of a head's scores, and heads of all sequences."""
        tokens, split = self.tokens // self.batch, 1 if self.by_ring else self.context
        return tokens * split, tokens * self.context // share, self.batch * self._heads // split

    def _apart(self, share: int) -> tuple[Kernel, ...]:
        """Not fused; softmax scales and masks, and outputs are put together head by head."""
        queries, keys, heads = self._of_scores(share)
        size, attention = self.value_bytes, self.attention
        dropout = passing("score dropout", queries * keys * heads, 2 * size + MASK_BYTES, 2)
        return (
            product("scores", queries, keys, attention.query_size, size, heads),
            softmax("softmax", queries * heads, keys, 2 * size),
            *((dropout,) if self.drops else ()),
            product("sums of values", queries, attention.value_size, keys, size, heads),
            passing("outputs transposed", self.tokens * self._outputs, 2 * size),
        )

    def _apart_backward(self, share: int) -> tuple[Kernel, ...]:
        """The same in the other direction; gradients of queries, keys and values are put together."""
        queries, keys, heads = self._of_scores(share)
        size, attention = self.value_bytes, self.attention
        dropout = passing("score dropout", queries * keys * heads, 2 * size + MASK_BYTES, 2)
        return (
            product("scores gradients", queries, keys, attention.value_size, size, heads),
            product("values gradients", keys, attention.value_size, queries, size, heads),
            *((dropout,) if self.drops else ()),
            softmax("softmax", queries * heads, keys, 3 * size),
            product("queries gradients", queries, attention.query_size, keys, size, heads),
            product("keys gradients", keys, attention.query_size, queries, size, heads),
            passing("gradients transposed", self.tokens * (self._query_values + self._key_values), 2 * size),
        )

    def _fused(self, share: int, *, backward: bool) -> Kernel:
        attention, heads = self.attention, self._heads
        query, value = attention.query_size, attention.value_size
        length = products(attention, backward=backward)
        pairs = self.pairs // (self.context * share)
        moved = self.tokens * (self._query_values + self._outputs + self._key_values)
        tokens, split = self.tokens // self.batch, 1 if self.by_ring else self.context
        keys = tokens * self.context // share
        if self.window:  # in words, the mean number that a query sees, rounded up
            keys = -(-self.pairs // (self.batch * tokens * self.context))
        shape = shapes.attention(
            self.batch,
            heads // split,
            tokens * split,
            keys,
            query,
            key_heads=max(self._key_heads // split, 1),
            value_width=None if value == query else value,
            causal=self.is_causal and self.context == 1 and not self.window,
            backward=backward,
        )
        size = moved * (2 if backward else 1) * self.value_bytes
        return Kernel("attention", 2 * pairs * heads * length, size, shape)

    def forward(self, work: Work) -> None:
        if self.context == 1:
            self._all(work, backward=False)
        elif self.by_ring:
            self._ring(work, backward=False)
        else:
            self._exchanged(work, backward=False)

    def backward(self, work: Work) -> None:
        if self.is_recomputed:
            self._all(work, backward=False)
        if self.context == 1:
            self._all(work, backward=True)
        elif self.by_ring:
            self._ring(work, backward=True)
        else:
            self._exchanged(work, backward=True)

    def _all(self, work: Work, *, backward: bool) -> None:
        for kernel in self._kernels(1, backward=backward):
            work.then(kernel)

    def _ring(self, work: Work, *, backward: bool) -> None:
        """While a rank works on the keys and values that it has, the next ones come."""
        kernels, given, has = self._kernels(self.context, backward=backward), work.at, work.at
        gradients: Nodes = ()
        for step in range(self.context):
            coming: Nodes = ()
            if step + 1 < self.context:
                coming = self._pass_on(work.rank, work, has, "keys")
            done = given + has + gradients
            for kernel in kernels:
                done = work.compute(kernel, done)
            if backward:
                gradients = self._pass_on(work.rank, work, done + gradients, "gradients of keys")
            has = coming
            work.at = done
        work.at += gradients

    def _pass_on(self, rank: Rank, work: Work, after: Nodes, content: str) -> Nodes:
        """To the next rank of the ring, and from the one before."""
        tag, size = work.next_tag(), self.key_bytes
        rank.send(
            rank.next(CONTEXT, 1, wraps=True), size, tag, name=work.name(f"{content} send"), after=after
        )
        source = rank.next(CONTEXT, -1, wraps=True)
        return rank.receive(source, size, tag, name=work.name(f"{content} receive"), after=after)

    def _exchanged(self, work: Work, *, backward: bool) -> None:
        """All tokens of some heads, instead of some tokens of all heads."""
        there = self.tokens * (self._query_values + self._key_values) * self.value_bytes
        back = self.tokens * self._outputs * self.value_bytes
        first, last = (back, there) if backward else (there, back)
        work.exchange("all_to_all", first, CONTEXT, "heads all-to-all")
        self._all(work, backward=backward)
        work.exchange("all_to_all", last, CONTEXT, "tokens all-to-all")
