"""Batching on one replica: the running sequences, the contents of batches, and the use of the cache.

A sequence has its prompt and the tokens produced so far. The next pass needs those that are not cached: of a
new sequence its prompt, of a running one the last token; of one that lost its cache all of them. A pass over
the rest of a sequence produces one more token.

Cache is allocated in blocks: for all tokens of a sequence when it begins to run, and then for each further
token. If none is left, the sequence that arrived last loses its own and waits at the front (recomputation);
no other begins to run before one has finished.

With a prefix cache, blocks of tokens stay where nothing else needs their room, and sequences that begin with
the same tokens share them. A sequence computes at least its last token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.lazy_names import loaded
from et_sim.serving.prefixes import Found, HeldBlocks, Holding, PrefixCache, path_of
from et_sim.serving.sequences import NEVER, ServedSequence
from et_sim.serving.speculation import Speculation
from et_sim.workloads.inference.memory import CacheUnits

PREFILL_FIRST, CHUNKED, STATIC = "prefill-first", "chunked", "static"
PREFILL_FIRST_CHUNKED, WHOLE_PROMPTS = "prefill-first-chunked", "whole-prompts"
POLICIES: Mapping[str, str] = MappingProxyType(  # a policy is a class in a module, and an entry here
    {
        PREFILL_FIRST: "et_sim.serving.policies.prefill_first:PrefillFirst",
        CHUNKED: "et_sim.serving.policies.chunked:Chunked",
        PREFILL_FIRST_CHUNKED: "et_sim.serving.policies.prefill_first_chunked:PrefillFirstChunked",
        WHOLE_PROMPTS: "et_sim.serving.policies.whole_prompts:WholePrompts",
        STATIC: "et_sim.serving.policies.static:Static",
    }
)


class Policy(Struct, frozen=True):
    """A batching policy by name, and its limits."""

    name: str = CHUNKED
    max_batch: int = 256  # sequences that run at a time
    token_budget: int = 2048  # of a batch; of its prompts if they are not processed in parts
    block: int = 16  # tokens whose cache is allocated together
    prompt_every: int = 1  # prompts are in each pass of this number, unless no sequence has a token to get
    wait_passes: int = 0  # for so many of single tokens prompts wait for each other, until they fill a share
    wait_share: float = 0.0  # of the budget of tokens; prompts that fill it with single tokens do not wait
    balance_passes: int = 0  # likewise, until each data-parallel group has a prompt

    def __post_init__(self) -> None:
        if self.name not in POLICIES:
            remedy = did_you_mean(self.name, tuple(POLICIES)) or f"known: {', '.join(POLICIES)}"
            raise UsageError(f"there is no policy {self.name!r}", remedy=remedy)
        for option, value in (
            ("max-batch", self.max_batch),
            ("token-budget", self.token_budget),
            ("block", self.block),
            ("prompt-every", self.prompt_every),
        ):
            if not 1 <= value <= 10**9:
                raise UsageError(f"--{option} is {value}", remedy="give a number from 1 to 1,000,000,000")
        self.batching.check(self)

    @property
    def batching(self) -> Batching:
        """Return the rules of the policy."""
        rules: Batching = loaded(POLICIES[self.name])()
        return rules


class Batching:
    """The rules by which sequences of a replica form batches; each policy is a class that derives from it.

    `repeats`: after a batch of single tokens, the next one has the same sequences, if none ends or arrives
    and blocks suffice.
    """

    repeats = True

    def check(self, policy: Policy) -> None:
        """Refuse limits that the policy does not support."""

    def takes_caches(self, _batcher: Batcher) -> bool:
        """Return whether sequences whose cache comes from another replica may begin."""
        return True

    def next_batch(self, batcher: Batcher) -> list[Share]:
        """Return the next batch; empty if there is nothing to do."""
        raise NotImplementedError


NOTHING = Found(0, 0)


class Share(NamedTuple):
    """The tokens of a sequence in a batch."""

    sequence: ServedSequence
    tokens: int


def blocks_for(tokens: int, block: int) -> int:
    """Return the number of blocks for some tokens."""
    return -(-tokens // block)


class Batcher:
    """The sequences of one replica, which has a number of blocks.

    If layers keep different numbers of tokens, blocks are units of memory, and `units` counts them. With
    `prefixes`, there are blocks by content; those that no running sequence holds count as free. `remote` has
    the blocks of sequences that have left, which are loaded in place of being computed.
    """

    def __init__(
        self,
        policy: Policy,
        blocks: int,
        units: CacheUnits | None = None,
        prefixes: PrefixCache | None = None,
        remote: PrefixCache | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self.policy, self.prefixes, self.remote = policy, prefixes, remote
        self._speculation = speculation
        self.drafts = 0 if speculation is None else speculation.tokens
        self.loads: list[Share] = []  # that begin, with the tokens to be loaded
        self.loaded: deque[ServedSequence] = deque()  # that may be in a batch
        self._needed = partial(blocks_for, block=policy.block) if units is None else units.of
        self.block_units = 1 if units is None else units.unlimited
        self.blocks = self.free = blocks
        self.waiting: deque[ServedSequence] = deque()
        self.running: list[ServedSequence] = []  # in the order of arrival
        self.coming: list[ServedSequence] = []  # their cache is on its way here
        self.preemptions = 0
        self.left = 0  # tokens that are still to be processed
        self.produced = 0  # tokens of all sequences so far
        self._passes = -1  # the number of the one that is under way
        self.may_differ = False  # the next batch of single tokens, from the last one
        self._late: list[ServedSequence] = []  # that came after the next batch was chosen
        self._waited = 0  # passes since prompts that might have begun wait
        self._is_full = False
        self._batching = policy.batching

    @property
    def repeats(self) -> bool:
        """Return whether batches of single tokens repeat, by the rules of the policy."""
        return self._batching.repeats and self.policy.prompt_every == 1

    @property
    def used(self) -> int:
        """Return the number of blocks in use."""
        return self.blocks - self.free

    @property
    def queued(self) -> int:
        """Return the number of sequences that wait, with those that came too late for the next batch."""
        return len(self.waiting) + len(self._late)

    @property
    def requests(self) -> int:
        """Return the number of sequences that wait, run, or have their cache on its way here."""
        return self.queued + len(self.running) + len(self.coming) + len(self.loaded)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no sequence."""
        return not self.requests

    def fits(self, tokens: int) -> bool:
        """Return whether a sequence with this number of cached tokens could ever run."""
        return self._needed(tokens + self.drafts) <= self.blocks

    # Beginning and ending.

    def enqueue(self, sequence: ServedSequence, *, is_late: bool = False) -> None:
        """Append a sequence to those that wait; a late one cannot be in the next batch, which is chosen."""
        (self._late if is_late else self.waiting).append(sequence)
        self.left += sequence.left

    def admit_caches(self, begin: Callable[[ServedSequence], None]) -> None:
        """Allocate blocks for sequences whose cache comes from another replica, as long as they are next."""
        while self.waiting and self.waiting[0].is_elsewhere:
            found = self.found(self.waiting[0])
            if not self._may_begin(self.waiting[0], found) or not self._batching.takes_caches(self):
                return
            sequence = self._take(found)
            self.coming.append(sequence)
            begin(sequence)

    def cache_arrived(self, sequence: ServedSequence) -> None:
        """Run a sequence whose cache has arrived."""
        self.coming.remove(sequence)
        sequence.is_elsewhere = False
        self._keep(sequence)
        self.running.append(sequence)

    def release(self, given: HeldBlocks) -> None:
        """Free blocks that are no longer needed."""
        self.free += given.blocks
        if self.prefixes is not None and given.held is not None:
            if self.remote is not None:
                self.remote.put(given.held)
            self.free -= self.prefixes.release(given.held)
            self.prefixes.trim(self.free)

    def found(self, sequence: ServedSequence) -> Found:
        """Return the blocks of a sequence that are there by content, without its last token."""
        if self.prefixes is None:
            return NOTHING
        most = (sequence.all_tokens - 1) // self.policy.block
        path = path_of(sequence.request, self.policy.block)
        found = self.prefixes.find(path, most)
        if self.remote is None or sequence.is_elsewhere:
            return found
        return found._replace(remote=max(self.remote.find(path, most).blocks - found.blocks, 0))

    def _may_begin(self, sequence: ServedSequence, found: Found, others: int = 0, blocks: int = 0) -> bool:
        """Return whether a sequence may begin, behind others that take some blocks."""
        begun = len(self.running) + len(self.coming) + len(self.loaded) + others
        needed = self._needed(sequence.all_tokens) - found.held + blocks
        return begun < self.policy.max_batch and not self._is_full and needed <= self.free

    def _take(self, found: Found) -> ServedSequence:
        """Take the first waiting sequence, with blocks for all its tokens; found ones are cached."""
        sequence = self.waiting.popleft()
        sequence.blocks = self._needed(sequence.all_tokens)
        self.free -= sequence.blocks - found.held
        if self.prefixes is None:
            return sequence
        sequence.held = Holding(path_of(sequence.request, self.policy.block))
        self.prefixes.advance(sequence.held, found.blocks)
        self.prefixes.trim(self.free)
        if not sequence.is_elsewhere:
            sequence.cached = found.blocks * self.policy.block
            self.left -= sequence.cached
            if sequence.scheduled_ns == NEVER:
                sequence.hit_tokens = sequence.cached
        return sequence

    def _keep(self, sequence: ServedSequence) -> None:
        """Hold the full blocks of a sequence by their content; of equal blocks, one is kept."""
        if self.prefixes is not None and sequence.held is not None:
            self.free += self.prefixes.advance(sequence.held, sequence.cached // self.policy.block)

    def advance(self, shares: Sequence[Share], tokens: int) -> None:
        """Add tokens of passes with single tokens, whose blocks are allocated, to each sequence."""
        for sequence, _ in shares:
            sequence.produced += tokens
            sequence.cached += tokens
            sequence.blocks = self._needed(sequence.all_tokens)
            self._keep(sequence)
        if self.prefixes is not None:
            self.prefixes.trim(self.free)
        self.left -= tokens * len(shares)
        self.produced += tokens * len(shares)

    # Batches.

    def next_batch(self, *, holds_prompts: bool = False) -> list[Share]:
        """Return the next batch, without prompts if they are held; empty if there is nothing to do."""
        batch = self._next_batch(holds_prompts)
        if self._late:
            self.waiting.extend(self._late)
            self._late.clear()
            batch = batch or self._next_batch(holds_prompts)
            self.may_differ = True
        return batch

    def _next_batch(self, holds_prompts: bool) -> list[Share]:
        self._passes += 1
        self.may_differ = False
        is_without = holds_prompts or self._passes % self.policy.prompt_every > 0 or self._prompts_wait()
        if is_without and (shares := self.single_tokens()):
            return shares
        batch = self._batching.next_batch(self)
        if not batch and self.loaded:  # the last running sequence has lost its cache
            batch = self._batching.next_batch(self)
        return batch

    def _prompts_wait(self) -> bool:
        """Return whether prompts wait for others, beside single tokens; count the passes."""
        if not self.policy.wait_passes or not (ready := self.ready_tokens):
            return False
        singles = self.singles * (1 + self.drafts)
        is_enough = ready + singles >= self.policy.wait_share * self.policy.token_budget
        self.may_differ = singles > 0 and self._waited < self.policy.wait_passes and not is_enough
        self._waited = self._waited + 1 if self.may_differ else 0
        return self.may_differ

    @property
    def singles(self) -> int:
        """Return the number of running sequences whose next token is due."""
        return sum(sequence.pending == 1 for sequence in self.running)

    @property
    def ready_tokens(self) -> int:
        """Return the tokens of waiting prompts that might begin together."""
        ready = blocks = 0
        for number, sequence in enumerate(self.waiting):
            found = self.found(sequence)
            is_over = ready and ready + sequence.pending > self.policy.token_budget
            if is_over or not self._may_begin(sequence, found, number, blocks):
                break
            ready += sequence.pending
            blocks += self._needed(sequence.all_tokens) - found.held
        return ready

    def prompts(self, budget: int, *, in_parts: bool = False) -> list[Share]:
        """Return sequences that begin to run, in the order of arrival, up to `budget` tokens.

        Without parts, the first one may be longer.
        """
        shares: list[Share] = []
        while self.loaded or (self.waiting and not self.waiting[0].is_elsewhere):
            sequence = (self.loaded or self.waiting)[0]
            found = NOTHING if self.loaded else self.found(sequence)
            pending = sequence.pending - found.blocks * self.policy.block
            tokens = min(pending, budget) if in_parts else pending
            is_over = not tokens or (tokens > budget and shares and not found.remote)
            if is_over or not (self.loaded or self._may_begin(sequence, found)):
                break
            if self.loaded:
                self.loaded.popleft()
            elif self._take(found) and found.remote:
                self.coming.append(sequence)
                self.loads.append(Share(sequence, found.remote * self.policy.block))
                continue
            shares.append(Share(sequence, tokens))
            budget -= tokens
            self.running.append(sequence)
        self.may_differ = bool(shares)
        return shares

    def begun_loads(self) -> list[Share]:
        """Return the sequences whose cache is to be loaded from now on, each once."""
        begun, self.loads = self.loads, []
        return begun

    def cache_loaded(self, sequence: ServedSequence, tokens: int) -> None:
        """Let a sequence be in batches, since these tokens of its cache have come from remote memory."""
        self.coming.remove(sequence)
        sequence.cached += tokens
        sequence.loaded_tokens += tokens
        self.left -= tokens
        self._keep(sequence)
        self.loaded.append(sequence)

    def begun_prompts(self, budget: int) -> list[Share]:
        """Return further parts of prompts that have begun, up to `budget` tokens."""
        shares: list[Share] = []
        for sequence in self.running:
            if sequence.pending > 1 and budget:
                shares.append(Share(sequence, min(sequence.pending, budget)))
                budget -= shares[-1].tokens
        return shares

    def single_tokens(self) -> list[Share]:
        """Return a token and drafts of each sequence whose prompt is cached, as far as there are blocks."""
        shares: list[Share] = []
        at = 0
        while at < len(self.running):
            sequence = self.running[at]
            if sequence.pending == 1 and self._grow(sequence):
                shares.append(Share(sequence, 1 + self.drafts))
            at += 1
        return shares

    def _grow(self, sequence: ServedSequence) -> bool:
        """Allocate blocks for one more token and drafts; return whether the sequence kept its blocks."""
        while (missing := self._needed(sequence.all_tokens + self.drafts) - sequence.blocks) > 0:
            if taken := min(missing, self.free):
                self.free -= taken
                sequence.blocks += taken
                if self.prefixes is not None:
                    self.prefixes.trim(self.free)
                continue
            last = self.running.pop()
            self._preempt(last)
            if last is sequence:
                return False
        return True

    def _preempt(self, sequence: ServedSequence) -> None:
        self.release(self._leave(sequence))
        self.left += sequence.cached
        sequence.cached = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)
        self._is_full = True

    def complete(self, batch: list[Share]) -> list[ServedSequence]:
        """End a pass; return the sequences that got a token."""
        given = []
        for sequence, tokens in batch:
            if self._speculation is not None and tokens > sequence.pending:
                kept = self._speculation.kept(sequence.verified)
                kept = min(kept, sequence.request.output - sequence.produced)
                sequence.verified += 1
                sequence.produced += kept
                self.produced += kept
                sequence.cached += kept
                self.left -= kept
                self._keep(sequence)
                given.append(sequence)
                continue
            sequence.cached += tokens
            self.left -= tokens
            self._keep(sequence)
            if sequence.pending == 0:
                sequence.produced += 1
                self.produced += 1
                given.append(sequence)
        return given

    def finish(self, sequence: ServedSequence) -> None:
        """Release a sequence with all its tokens."""
        self.release(self.drain(sequence))

    def drain(self, sequence: ServedSequence) -> HeldBlocks:
        """Remove a sequence that leaves; return its blocks, which are still to be released."""
        self.running.remove(sequence)
        self.left -= sequence.left
        self._is_full = False
        return self._leave(sequence)

    def _leave(self, sequence: ServedSequence) -> HeldBlocks:
        given = HeldBlocks(sequence.blocks, sequence.held)
        sequence.blocks, sequence.held = 0, None
        return given
