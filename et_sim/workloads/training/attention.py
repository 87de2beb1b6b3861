"""The core of attention: scores of queries and keys, and sums of values by them.

Each rank of the context axis has a share of the tokens. In a ring, keys and values travel from rank to rank;
each rank computes with the block that it has, and merges the outputs with those so far. Backward, gradients
travel along and return to their owner. With all-gathers, each rank gets all keys and values; backward, the
gradients of all are reduced and scattered. With all-to-all exchanges, each rank gets all tokens of a share of
the heads, and returns them.

Fused attention is one kernel for each block of queries and keys, which recomputes scores in the backward pass
and skips masked ones. Keys and values are read once, also if queries see a window of tokens only. Unfused
attention is products, softmax (with scale and mask) and dropout; each of these reads and writes all scores of
a block, masked ones included.

If all ranks have the same number of pairs, all use the blocks of the rank in the middle.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from et_sim.trace import shapes
from et_sim.workloads.kernels import MASK_BYTES, Kernel, passing, product, softmax
from et_sim.workloads.models.model import Attention, Model
from et_sim.workloads.rank import Rank
from et_sim.workloads.recording import Nodes
from et_sim.workloads.software.description import BEST, UNFUSED
from et_sim.workloads.training.blocks import AttentionBlock, QuerySight, gathered_blocks, ring_blocks
from et_sim.workloads.training.plan import CONTEXT, Plan
from et_sim.workloads.training.plan_options import ALL_GATHER, RING, ZIGZAG
from et_sim.workloads.training.work import RankWork

SUM_BYTES = 4  # size of an output while blocks are merged, and of the logarithm of a row's sum
MERGED = 4  # operations for each output: both parts are scaled and added


def products(attention: Attention, *, backward: bool) -> int:
    """Return the total length of the vectors that a fused kernel multiplies for a pair and head."""
    query, value = attention.query_size, attention.value_size
    return 3 * query + 2 * value if backward else query + value


def sight_of(model: Model, plan: Plan, window: int) -> QuerySight:
    """Return the keys that queries see in a layer with a window."""
    causal, document = plan.causal and not model.is_encoder, plan.document_tokens
    if model.in_chunks and window:
        return QuerySight(model.sequence, causal, 0, min(window, document or window))
    return QuerySight(model.sequence, causal, window if causal else 0, document)


class Core(Struct, frozen=True):
    """Attention of one micro-batch on one rank."""

    attention: Attention
    sight: QuerySight
    tensor: int
    context: int
    method: str
    is_zigzag: bool
    value_bytes: int
    is_fused: bool
    drops: bool
    batch: int
    kernel: str = ""  # empty: the best kernel of the device

    @staticmethod
    def of(model: Model, plan: Plan, window: int) -> Core:
        """Return the attention of a layer with a window."""
        return Core(
            model.attention,
            sight_of(model, plan, window),
            plan.tensor,
            plan.context,
            plan.context_attention,
            plan.context_balance == ZIGZAG,
            plan.value_bytes,
            plan.fused_attention,
            model.has_dropout and plan.dropout,
            plan.batch,
            "" if plan.by.attention in (BEST, UNFUSED) else plan.by.attention,
        )

    @property
    def tokens(self) -> int:
        """Return the tokens of the rank."""
        return self.batch * self.sight.sequence // self.context

    @property
    def _split(self) -> int:
        """Return the number of shares that the heads are cut into."""
        return 1 if self.method in (RING, ALL_GATHER) else self.context

    @property
    def _heads(self) -> int:
        return self.attention.heads // self.tensor

    @property
    def _key_heads(self) -> int:
        return max(self.attention.key_heads // self.tensor, 1)

    @property
    def _query_values(self) -> int:
        """Return the values of a token's queries."""
        return self._heads * self.attention.query_size

    @property
    def _key_values(self) -> int:
        """Return the values of a token's keys and values."""
        return self._key_heads * (self.attention.query_size + self.attention.value_size)

    @property
    def _outputs(self) -> int:
        return self._heads * self.attention.value_size

    @property
    def key_bytes(self) -> int:
        """Return the bytes of keys and values of the rank's own tokens."""
        return self.tokens * self._key_values * self.value_bytes

    def blocks(self, place: int) -> tuple[AttentionBlock | None, ...]:
        """Return the blocks of the rank at a place of the context axis, step by step; None: no work."""
        if self._split > 1 or self.context == 1:
            return (self.sight.block(0, self.sight.sequence),)
        blocks = ring_blocks if self.method == RING else gathered_blocks
        return blocks(self.sight, self.context, place, is_balanced=self.is_zigzag)

    def _of(self, rank: Rank) -> tuple[AttentionBlock | None, ...]:
        """Return the blocks of a rank, or of the middle rank if all have the same work."""
        work = {
            sum(block.pairs for block in self.blocks(place) if block is not None)
            for place in range(self.context)
        }
        return self.blocks(self.context // 2 if len(work) == 1 else rank.place(CONTEXT))

    def _kernels(self, block: AttentionBlock, *, backward: bool) -> tuple[Kernel, ...]:
        if self.is_fused:
            return (self._fused(block, backward=backward),)
        return self._apart_backward(block) if backward else self._apart(block)

    def _of_scores(self, block: AttentionBlock) -> tuple[int, int, int]:
        """Return queries and keys of a head's scores, with masked ones, and the heads of all sequences."""
        return block.all_queries, block.keys_read, self.batch * self._heads // self._split

    def _apart(self, block: AttentionBlock) -> tuple[Kernel, ...]:
        """Return unfused kernels; softmax scales and masks, and outputs are joined head by head."""
        queries, keys, heads = self._of_scores(block)
        size, attention = self.value_bytes, self.attention
        dropout = passing("score dropout", queries * keys * heads, 2 * size + MASK_BYTES, 2)
        outputs = queries * heads * attention.value_size
        return (
            product("scores", queries, keys, attention.query_size, size, heads),
            softmax("softmax", queries * heads, keys, 2 * size),
            *((dropout,) if self.drops else ()),
            product("sums of values", queries, attention.value_size, keys, size, heads),
            passing("outputs transposed", outputs, 2 * size),
        )

    def _apart_backward(self, block: AttentionBlock) -> tuple[Kernel, ...]:
        """Return unfused backward kernels; gradients of queries, keys and values are joined."""
        queries, keys, heads = self._of_scores(block)
        size, attention = self.value_bytes, self.attention
        dropout = passing("score dropout", queries * keys * heads, 2 * size + MASK_BYTES, 2)
        gradients = queries * heads * attention.query_size
        gradients += self.batch * keys * self._key_values // self._split
        return (
            product("scores gradients", queries, keys, attention.value_size, size, heads),
            product("values gradients", keys, attention.value_size, queries, size, heads),
            *((dropout,) if self.drops else ()),
            softmax("softmax", queries * heads, keys, 3 * size),
            product("queries gradients", queries, attention.query_size, keys, size, heads),
            product("keys gradients", keys, attention.query_size, queries, size, heads),
            passing("gradients transposed", gradients, 2 * size),
        )

    def _fused(self, block: AttentionBlock, *, backward: bool) -> Kernel:
        attention, heads = self.attention, self._heads // self._split
        query, value = attention.query_size, attention.value_size
        length = products(attention, backward=backward)
        moved = block.all_queries * (self._query_values + self._outputs) + block.keys_read * self._key_values
        shape = shapes.attention(
            self.batch * block.documents,
            heads,
            block.queries,
            block.keys,
            query,
            key_heads=max(self._key_heads // self._split, 1),
            value_width=None if value == query else value,
            causal=block.is_causal,
            backward=backward,
            kernel=self.kernel,
        )
        size = self.batch * moved // self._split * (2 if backward else 1) * self.value_bytes
        return Kernel("attention", 2 * self.batch * block.pairs * heads * length, size, shape)

    def forward(self, work: RankWork) -> None:
        self._run(work, backward=False)

    def backward(self, work: RankWork) -> None:
        self._run(work, backward=True)

    def _run(self, work: RankWork, *, backward: bool) -> None:
        blocks = self._of(work.rank)
        if self.context == 1:
            self._all(work, blocks, backward=backward)
        elif self.method == RING:
            self._ring(work, blocks, backward=backward)
        elif self.method == ALL_GATHER:
            self._gathered(work, blocks, backward=backward)
        else:
            self._exchanged(work, blocks, backward=backward)

    def _all(self, work: RankWork, blocks: tuple[AttentionBlock | None, ...], *, backward: bool) -> None:
        for block in filter(None, blocks):
            for kernel in self._kernels(block, backward=backward):
                work.then(kernel)

    def _ring(self, work: RankWork, blocks: tuple[AttentionBlock | None, ...], *, backward: bool) -> None:
        """Add the kernels and messages of a ring; the next keys arrive during the kernels of a block."""
        has, done = work.at, work.at
        gradients: Nodes = ()
        last = max(step for step, block in enumerate(blocks) if block is not None)
        for step, block in enumerate(blocks):
            coming: Nodes = ()
            if step + 1 < self.context:
                coming = self._pass_on(work.rank, work, has, "keys")
            if block is not None:
                done += has
                for kernel in self._kernels(block, backward=backward):
                    done = work.compute(kernel, done)
                if step and backward:
                    done = work.compute(self._sum_of_gradients(block), done + gradients)
                elif step:
                    done = work.compute(self._merge(block, is_first=step == 1, is_last=step == last), done)
            if backward:
                summed = done if block is not None else gradients
                gradients = self._pass_on(work.rank, work, summed, "gradients of keys")
            has = coming
        work.at = done + gradients

    def _merge(self, block: AttentionBlock, *, is_first: bool, is_last: bool) -> Kernel:
        """Return the kernel that merges a block's outputs with those so far, scaled by their row sums."""
        rows, size = self.batch * block.all_queries, self.value_bytes
        moved = (size if is_first else SUM_BYTES) + size + (size if is_last else SUM_BYTES)
        kernel = passing("outputs merged", rows * self._outputs, moved, MERGED)
        return replace(kernel, bytes=kernel.bytes + 3 * SUM_BYTES * rows * self._heads)

    def _sum_of_gradients(self, block: AttentionBlock) -> Kernel:
        """Return the kernel that adds gradients of a block's queries and keys to those so far."""
        values = block.all_queries * self._query_values + block.keys_read * self._key_values
        return passing("gradients summed", self.batch * values, 3 * self.value_bytes, launches=2)

    def _pass_on(self, rank: Rank, work: RankWork, after: Nodes, content: str) -> Nodes:
        """Send to the next rank of the ring, and receive from the previous one."""
        tag, size = work.next_tag(), self.key_bytes
        rank.send(
            rank.next(CONTEXT, 1, wraps=True), size, tag, name=work.name(f"{content} send"), after=after
        )
        source = rank.next(CONTEXT, -1, wraps=True)
        return rank.receive(source, size, tag, name=work.name(f"{content} receive"), after=after)

    def _gathered(self, work: RankWork, blocks: tuple[AttentionBlock | None, ...], *, backward: bool) -> None:
        """Gather all keys and values before each pass; backward, reduce the gradients of all of them."""
        work.exchange("all_gather", self.key_bytes, CONTEXT, "keys all-gather")
        values = self.tokens * self.context * self._key_values
        in_order = passing("keys in order", values, 2 * self.value_bytes)
        if len(blocks) > 1:
            work.then(in_order)
        for number, block in enumerate(filter(None, blocks)):
            for kernel in self._kernels(block, backward=backward):
                work.then(kernel)
            if number and backward:
                added = self.batch * block.keys_read * self._key_values
                work.then(passing("gradients summed", added, 3 * self.value_bytes))
        if backward:
            if len(blocks) > 1:
                work.then(replace(in_order, name="gradients of keys in order"))
            size = self.key_bytes * self.context
            work.exchange("reduce_scatter", size, CONTEXT, "gradients of keys reduce-scatter")

    def _exchanged(
        self, work: RankWork, blocks: tuple[AttentionBlock | None, ...], *, backward: bool
    ) -> None:
        """Exchange some tokens of all heads for all tokens of some heads, and back."""
        there = self.tokens * (self._query_values + self._key_values) * self.value_bytes
        back = self.tokens * self._outputs * self.value_bytes
        first, last = (back, there) if backward else (there, back)
        work.exchange("all_to_all", first, CONTEXT, "heads all-to-all")
        self._all(work, blocks, backward=backward)
        work.exchange("all_to_all", last, CONTEXT, "tokens all-to-all")
