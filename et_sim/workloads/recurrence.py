"""Kernels of layers with a recurrent state in place of attention: Mamba-2, and the gated delta rule.

Many tokens are computed in chunks: products of matrices within each chunk, and the states at the ends of
chunks, each from the previous one. The kernels are those of the published programs: Dao and Gu, "Transformers
are SSMs" (2024), section 7, for Mamba-2; Yang et al., "Gated Delta Networks" (2024), section 3.3, for the
delta rule, whose states are computed in one kernel along the sequence. States are in fp32. For single tokens,
the state is read, changed and written.

A backward pass recomputes the states, and then has two products for each forward one. The products with
weights before and after are not included.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from et_sim.workloads.kernels import Kernel, norm, passing, product
from et_sim.workloads.models.model import Recurrence

STATE_BYTES = 4  # size of a value of a state
STATE_OPERATIONS = (
    7  # for each value of a state and each token: decay, an added product, and a product that reads
)
ACTIVATION, GATES = 4, 8  # operations: SiLU after the convolution; steps and decays of a head


class SequenceChunks(Struct, frozen=True):
    """Sequences of equal length on a rank."""

    recurrence: Recurrence  # the rank's share
    sequences: int
    length: int
    value_bytes: int

    @property
    def _tokens(self) -> int:
        return self.sequences * self.length

    @property
    def _size(self) -> int:
        """Return the tokens of a chunk."""
        return min(self.recurrence.chunk, self.length)

    @property
    def _copies(self) -> int:
        """Return the number of chunks of all heads."""
        return self.sequences * -(-self.length // self._size) * self.recurrence.heads

    @property
    def _states(self) -> int:
        """Return the bytes of the states at the ends of all chunks."""
        return self._copies * self.recurrence.key_size * self.recurrence.value_size * STATE_BYTES

    @property
    def _key_bytes(self) -> int:
        """Return the bytes of all keys, or of all queries."""
        return self._tokens * self.recurrence.key_heads * self.recurrence.key_size * self.value_bytes

    @property
    def _output_bytes(self) -> int:
        """Return the bytes of all outputs, or of all values."""
        return self._tokens * self.recurrence.values * self.value_bytes

    def forward(self) -> Iterator[Kernel]:
        """Yield the kernels between the first product and the last one."""
        yield from self._before(1)
        yield from self._states_of_chunks()
        yield self._outputs(1)
        yield from self._after(is_backward=False)

    def backward(self) -> Iterator[Kernel]:
        """Yield the kernels of the backward pass."""
        yield from self._after(is_backward=True)
        yield from self._states_of_chunks("again")
        yield self._outputs(2)
        yield from self._states_of_chunks("gradients", 2)
        yield from self._before(2)

    def _before(self, passes: int) -> Iterator[Kernel]:
        """Yield the convolution, norms of queries and keys with the delta rule, and decays."""
        recurrence, size = self.recurrence, self.value_bytes
        each = 2 * recurrence.convolution + ACTIVATION
        moved = (1 + passes) * size  # backward: inputs, and gradients of inputs and of outputs
        yield passing("convolution", self._tokens * recurrence.channels, moved, passes * each, passes)
        if recurrence.has_delta_rule:
            rows = 2 * self._tokens * recurrence.key_heads
            kernel = norm("key norm", rows, recurrence.key_size, size, has_shift=False)[passes - 1]
            yield replace(kernel, launches=2)
        values = self._tokens * recurrence.heads
        yield passing("decay", values, passes * (size + STATE_BYTES), passes * GATES)

    def _states_of_chunks(self, suffix: str = "", passes: int = 1) -> Iterator[Kernel]:
        recurrence, size, chunk = self.recurrence, self.value_bytes, self._size
        key, value, copies = recurrence.key_size, recurrence.value_size, self._copies * passes
        if not recurrence.has_delta_rule:
            groups = copies * recurrence.key_heads // recurrence.heads
            scores = groups * chunk * chunk * size
            moved = passes * (self._output_bytes + self._key_bytes + self._states)
            yield _named(product("chunk states", value, key, chunk, size, copies), suffix, moved)
            ends = copies * key * value
            yield _named(passing("state passing", ends, 2 * STATE_BYTES, 2), suffix)
            moved = passes * 2 * self._key_bytes + scores
            yield _named(product("chunk scores", chunk, chunk, key, size, groups), suffix, moved)
            return
        square = copies * chunk * chunk * size
        keys, values = (self._tokens * recurrence.heads * width * size * passes for width in (key, value))
        moved = passes * self._key_bytes + square
        yield _named(product("chunk keys", chunk, chunk, key, size, copies), suffix, moved)
        third = max(chunk // 6, 1)  # a triangular matrix of this size is inverted
        yield _named(product("chunk inverse", chunk, chunk, third, size, copies), suffix, 2 * square)
        moved = square + passes * (self._key_bytes + self._output_bytes) + keys + values
        yield _named(product("chunk updates", chunk, key + value, chunk, size, copies), suffix, moved)
        rows = self.sequences * recurrence.heads  # each goes along its sequence
        inner = 2 * self._copies // rows * chunk
        moved = passes * (self._key_bytes + self._states) + keys + 2 * values
        yield _named(product("chunk states", key, value, inner, size, rows * passes), suffix, moved)

    def _outputs(self, passes: int) -> Kernel:
        """Return the product of outputs: from scores within a chunk, and from the state before it."""
        recurrence, chunk = self.recurrence, self._size
        key, value = recurrence.key_size, recurrence.value_size
        inner = key + chunk + (chunk * key // value if recurrence.has_delta_rule else 0)
        copies = self._copies * passes
        moved = passes * (2 * self._key_bytes + 2 * self._output_bytes + self._states)
        if not recurrence.has_delta_rule:  # scores are read
            groups = self._copies * recurrence.key_heads // recurrence.heads
            moved += passes * groups * chunk * chunk * self.value_bytes
        kernel = product("chunk outputs", chunk, value, inner, self.value_bytes, copies)
        return _named(kernel, "gradients" if passes > 1 else "", moved)

    def _after(self, *, is_backward: bool) -> Iterator[Kernel]:
        """Yield the norm of the outputs, by head or over all of them, and their gates."""
        recurrence, size = self.recurrence, self.value_bytes
        width = recurrence.value_size if recurrence.has_delta_rule else recurrence.values
        rows = self._tokens * recurrence.values // width
        yield norm("output norm", rows, width, size, has_shift=False)[is_backward]
        moved, operations = (5 * size, 12) if is_backward else (3 * size, 6)
        yield passing("gate", self._tokens * recurrence.values, moved, operations)

    def prefill(self) -> Iterator[Kernel]:
        """Yield the forward kernels of prompts, with operands from the largest memory."""
        for kernel in self.forward():
            yield kernel.cold()

    def decode(self) -> Iterator[Kernel]:
        """Yield the kernels of a token of each sequence: convolution, change of the state, and output."""
        recurrence, size = self.recurrence, self.value_bytes
        channels = self._tokens * recurrence.channels
        moved = (2 * recurrence.convolution + 1) * size
        yield passing("convolution", channels, moved, 2 * recurrence.convolution + ACTIVATION).cold()
        states = self._tokens * recurrence.state
        kernel = passing("state update", states, 2 * STATE_BYTES, STATE_OPERATIONS)
        more = self._tokens * (recurrence.channels + recurrence.values) * size
        yield replace(kernel, bytes=kernel.bytes + more).cold()
        yield from self._after(is_backward=False)


def _named(kernel: Kernel, suffix: str, moved: int | None = None) -> Kernel:
    name = f"{kernel.name} {suffix}" if suffix else kernel.name
    return replace(kernel, name=name, bytes=kernel.bytes if moved is None else moved)
