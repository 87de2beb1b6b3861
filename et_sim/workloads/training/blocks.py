"""Blocks of attention: the queries and keys of a sequence that a rank multiplies, and their pairs.

Ranks of the context axis share the tokens of a sequence. Without balance each has one piece, in order; with
zigzag there are twice as many pieces, and each rank has one from the front and its counterpart from the back,
so that all have the same number of pairs under a causal mask.

In a ring, a rank gets the keys of one rank at each step. With gathered keys, each of its pieces uses all keys
up to its queries. Where a ring has several documents, each of them is cut into pieces of its own, as
Transformer Engine does with packed sequences: a rank has a share of every document.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class AttentionBlock(Struct, frozen=True):
    """Queries and keys of one kernel, for each sequence; several equal documents may lie side by side."""

    queries: int  # in a document
    keys: int  # for each query: the mean, rounded up, if masks cut them
    pairs: int  # in all documents
    is_causal: bool  # the last query sees all keys, and each one before it one fewer
    documents: int = 1
    read: int = 0  # keys that are read, where they are more than `keys`

    @property
    def all_queries(self) -> int:
        """Return the queries of all documents."""
        return self.queries * self.documents

    @property
    def keys_read(self) -> int:
        """Return the keys that are read, of all documents."""
        return self.read or self.keys * self.documents

    def times(self, documents: int) -> AttentionBlock:
        """Return the same block of several equal documents."""
        return replace(self, pairs=self.pairs * documents, documents=documents)


class QuerySight(Struct, frozen=True):
    """The keys that a query of a sequence sees."""

    sequence: int
    is_causal: bool
    window: int = 0  # number of last keys, itself included; 0: all before
    document: int = 0  # tokens of a document, which limits the keys; 0: the sequence is one document

    @property
    def _whole(self) -> int:
        return self.document or self.sequence

    def pairs(self, queries: int) -> int:
        """Return the pairs of the first queries."""
        if not self.is_causal:
            return queries * self._whole
        documents, rest = divmod(queries, self._whole)
        return documents * self._of_document(self._whole) + self._of_document(rest)

    def _of_document(self, queries: int) -> int:
        seen = min(self.window or queries, queries)
        return seen * (seen + 1) // 2 + (queries - seen) * seen

    def block(self, first: int, queries: int) -> AttentionBlock:
        """Return the block of some queries from the first one on, with all keys that they see."""
        whole = self._whole
        pairs, before = self.pairs(first + queries) - self.pairs(first), first % whole
        if not self.window and not before and not queries % whole:
            return AttentionBlock(whole, whole, pairs, self.is_causal, documents=queries // whole)
        if not self.is_causal:
            documents = -(-(before + queries) // whole)
            return AttentionBlock(queries, whole, pairs, is_causal=False, read=documents * whole)
        if not self.window and before + queries <= whole:
            return AttentionBlock(queries, before + queries, pairs, is_causal=True)
        read = queries + (min(before, self.window - 1) if self.window else before)
        return AttentionBlock(queries, -(-pairs // queries), pairs, is_causal=False, read=read)


def ring_blocks(
    sight: QuerySight, ranks: int, place: int, *, is_balanced: bool
) -> tuple[AttentionBlock | None, ...]:
    """Return the blocks of the rank at a place, step by step; None: no query sees a key of the step."""
    if 0 < sight.document < sight.sequence:
        alone = replace(sight, sequence=sight.document, document=0)
        blocks = ring_blocks(alone, ranks, place, is_balanced=is_balanced)
        return tuple(block and block.times(sight.sequence // sight.document) for block in blocks)
    tokens = sight.sequence // ranks
    if not sight.is_causal:
        return (AttentionBlock(tokens, tokens, tokens * tokens, is_causal=False),) * ranks
    own = AttentionBlock(tokens, tokens, tokens * (tokens + 1) // 2, is_causal=True)
    before: AttentionBlock | None = AttentionBlock(tokens, tokens, tokens * tokens, is_causal=False)
    behind: AttentionBlock | None = None
    if is_balanced:
        half = tokens // 2
        before = AttentionBlock(tokens, half, tokens * half, is_causal=False)
        behind = AttentionBlock(half, tokens, half * tokens, is_causal=False)
    return (own, *(before if step <= place else behind for step in range(1, ranks)))


def gathered_blocks(
    sight: QuerySight, ranks: int, place: int, *, is_balanced: bool
) -> tuple[AttentionBlock, ...]:
    """Return the blocks of the rank at a place, which has the keys of all ranks."""
    tokens = sight.sequence // ranks
    if not is_balanced or not sight.is_causal:
        return (sight.block(place * tokens, tokens),)
    half = tokens // 2
    return sight.block(place * half, half), sight.block((2 * ranks - 1 - place) * half, half)
