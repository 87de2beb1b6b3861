"""Blocks of attention: which queries of a sequence meet which keys on a rank, and how many pairs they make.

Ranks of the context axis share the tokens of a sequence. Without balance each has one piece, in order; with
zigzag there are twice as many pieces, and each rank has one from the front and its counterpart from the back,
so that all have as many pairs under a causal mask.

In a ring, a rank meets the keys of one rank at each step. With gathered keys it meets, piece by piece, all
keys up to its queries.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Block(NamedTuple):
    """Queries and keys of one kernel, for each sequence; several equal documents may lie side by side."""

    queries: int  # of a document
    keys: int  # that are computed for each query: the mean, rounded up, where masks cut them
    pairs: int  # of all documents
    is_causal: bool  # the last query sees all keys, and each one before it one fewer
    documents: int = 1
    read: int = 0  # keys that are read, where they are more than `keys`

    @property
    def all_queries(self) -> int:
        """Of all documents."""
        return self.queries * self.documents

    @property
    def keys_read(self) -> int:
        """Of all documents."""
        return self.read or self.keys * self.documents


class Sight(Struct, frozen=True):
    """Which keys a query of a sequence sees."""

    sequence: int
    is_causal: bool
    window: int = 0  # the last so many, itself included; 0: all before
    document: int = 0  # tokens of a document, beyond which none is seen; 0: the sequence is one

    @property
    def _whole(self) -> int:
        return self.document or self.sequence

    def pairs(self, queries: int) -> int:
        """Those of the first queries."""
        if not self.is_causal:
            return queries * self._whole
        documents, rest = divmod(queries, self._whole)
        return documents * self._of_document(self._whole) + self._of_document(rest)

    def _of_document(self, queries: int) -> int:
        seen = min(self.window or queries, queries)
        return seen * (seen + 1) // 2 + (queries - seen) * seen

    def block(self, first: int, queries: int) -> Block:
        """The queries from one on, with all keys that they see."""
        whole = self._whole
        pairs, before = self.pairs(first + queries) - self.pairs(first), first % whole
        if not self.window and not before and not queries % whole:
            return Block(whole, whole, pairs, self.is_causal, documents=queries // whole)
        if not self.is_causal:
            documents = -(-(before + queries) // whole)
            return Block(queries, whole, pairs, is_causal=False, read=documents * whole)
        if not self.window and before + queries <= whole:
            return Block(queries, before + queries, pairs, is_causal=True)
        read = queries + (min(before, self.window - 1) if self.window else before)
        return Block(queries, -(-pairs // queries), pairs, is_causal=False, read=read)


def ring_blocks(sight: Sight, ranks: int, place: int, *, is_balanced: bool) -> tuple[Block | None, ...]:
    """Of the rank at a place, step by step; None: no query sees a key that the rank has then."""
    tokens = sight.sequence // ranks
    if not sight.is_causal:
        return (Block(tokens, tokens, tokens * tokens, is_causal=False),) * ranks
    own = Block(tokens, tokens, tokens * (tokens + 1) // 2, is_causal=True)
    before: Block | None = Block(tokens, tokens, tokens * tokens, is_causal=False)
    behind: Block | None = None
    if is_balanced:
        half = tokens // 2
        before = Block(tokens, half, tokens * half, is_causal=False)
        behind = Block(half, tokens, half * tokens, is_causal=False)
    return (own, *(before if step <= place else behind for step in range(1, ranks)))


def gathered_blocks(sight: Sight, ranks: int, place: int, *, is_balanced: bool) -> tuple[Block, ...]:
    """Of the rank at a place, which has the keys of all."""
    tokens = sight.sequence // ranks
    if not is_balanced or not sight.is_causal:
        return (sight.block(place * tokens, tokens),)
    half = tokens // 2
    return sight.block(place * half, half), sight.block((2 * ranks - 1 - place) * half, half)
