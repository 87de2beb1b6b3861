"""Kernels that engines run by themselves, where others compute the same as a part of other kernels.

| word | effect |
|---|---|
| casts | a kernel casts the inputs of each product in fp8 with scales of blocks; see below for experts |
| tensor-casts | the same for products in fp8 with one scale for a matrix |
| residuals | norms add the outputs of the layer before to the sum of all, which they read and write, too |
| rotary | a kernel rotates queries and keys |
| cache | a kernel writes keys and values to the cache |
| latent-norms | a kernel has the norms of compressed queries, keys and values |
| latent-rotary | a kernel rotates queries and keys, if keys and values are compressed |
| keys | copies put the keys of prompts together, if they are compressed, and the rotated parts into queries |
| sums | a kernel adds the outputs of routed experts, which came back, to those of the shared one |
| padded-experts | in fp8 with scales of blocks, each expert has whole blocks of rows, chosen or not |

Memory moves what a kernel reads and writes, each once. Measured experts of engines include their casts. Where
DeepEP brings the tokens of prompts, they are cast before they are sent in fp8, or else before experts' first
product, and again between the products; its kernels of low latency, and activations beside them, cast what
they write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from et_sim.basics.engine_names import (
    CACHE,
    CASTS,
    EXPERT_EXCHANGES,
    KEYS,
    LATENT_NORMS,
    LATENT_ROTARY,
    PADDED_EXPERTS,
    ROTARY,
    SUMS,
    TENSOR_CASTS,
)
from et_sim.basics.kernel_names import BLOCK_SCALES
from et_sim.workloads.inference.batch import BatchLoad
from et_sim.workloads.inference.numbers import LayerNumbers
from et_sim.workloads.inference.ranks import expert_sharers
from et_sim.workloads.kernels import RMS_NORM, Kernel, cast, element_wise, passing, strided
from et_sim.workloads.models.model import Attention, Latent, Model
from et_sim.workloads.training.plan import Plan

# vLLM has DeepGEMM's products of experts on fewer ranks than these, unless DeepEP counts the rows of each:
# its default since 0.11.1 for any number of tokens on Hopper (vllm-project/vllm, pull requests 26197, 29346;
# fused_moe/deep_gemm_utils.py: compute_aligned_M). Blocks without tokens are read, and not multiplied
# (deepseek-ai/DeepGEMM, sm90_fp8_gemm_1d2d.cuh).
UNPADDED_SHARERS = 8
FP8, GROUPED, TIMES = "fp8", "grouped_gemm", "x"  # words of shapes
ROTATE = 3  # operations of a rotated number: two products, and a sum


def words_for(separate: tuple[str, ...], model: Model, plan: Plan) -> tuple[str, ...]:
    """Return the words of an engine which hold for a model under a plan."""
    if PADDED_EXPERTS not in separate or _pads_experts(model, plan):
        return separate
    return tuple(word for word in separate if word != PADDED_EXPERTS)


def _pads_experts(model: Model, plan: Plan) -> bool:
    """Return whether the products of experts take whole blocks of rows."""
    if expert_sharers(plan) >= UNPADDED_SHARERS or plan.expert_exchange in EXPERT_EXCHANGES:
        return False
    with_experts = filter(model.has_experts, range(model.layers))
    return any(LayerNumbers.of(model, plan, layer).has_block_scales("experts up") for layer in with_experts)


class SeparateKernels:
    """The kernels that an engine has by themselves, made for one layer of a pass."""

    def __init__(
        self,
        words: Collection[str],
        value_bytes: int,
        *,
        casts_experts: bool = False,
        casts_sent: bool = False,
    ) -> None:
        self.words, self.value_bytes = words, value_bytes
        self.casts_experts, self.casts_sent = casts_experts, casts_experts and casts_sent

    def with_casts(self, kernels: Iterable[Kernel]) -> Iterator[Kernel]:
        """Yield kernels, and before products in fp8 the casts of their inputs."""
        for kernel in kernels:
            words = kernel.shape.split()
            casts = CASTS if BLOCK_SCALES in words else TENSOR_CASTS
            if kernel.dtype == FP8 and casts in self.words:
                yield from self._cast(kernel, words)
            yield kernel

    def _cast(self, kernel: Kernel, words: list[str]) -> Iterator[Kernel]:
        is_first = kernel.name == "experts up"
        if words[0] != GROUPED and TIMES not in words:
            rows, inner = int(words[1]), int(words[3])
            yield self.cast(f"{kernel.name} cast", rows * inner)
        elif words[0] == GROUPED and self.casts_experts and not (self.casts_sent and is_first):
            inner, rows = int(words[2]), int(words[3])
            yield self.cast(f"{kernel.name} cast", rows * inner * int(words[-1] if TIMES in words else 1))

    def cast(self, name: str, values: int) -> Kernel:
        """Return the kernel that casts values to 8 bits."""
        return cast(name, values, self.value_bytes, FP8, 1)

    def sent(self, tokens: int, hidden: int) -> Iterator[Kernel]:
        """Yield the cast of tokens that are sent to experts in fp8."""
        if CASTS in self.words and self.casts_sent:
            yield self.cast("to experts cast", tokens * hidden)

    def latent_norms(self, tokens: int, latent: Latent) -> Iterator[Kernel]:
        """Yield the norms of compressed queries, keys and values."""
        if LATENT_NORMS in self.words:
            width = latent.query_rank + latent.value_rank
            yield element_wise("latent norms", tokens * width, RMS_NORM, 2, self.value_bytes)

    def positions(self, rotated: int, cached: int, *, is_latent: bool = False) -> Iterator[Kernel]:
        """Yield the kernels that rotate values of queries and keys, and that write others to the cache."""
        if rotated and (ROTARY in self.words or (is_latent and LATENT_ROTARY in self.words)):
            yield element_wise("rotary", rotated, ROTATE, 2, self.value_bytes)
        if CACHE in self.words:
            yield passing("cache", cached, 2 * self.value_bytes)

    def keys(self, load: BatchLoad, heads: int, attention: Attention, latent: Latent) -> Iterator[Kernel]:
        """Yield the copies that put keys of every head together, and rotated parts into queries.

        Keys have one rotary part for all heads, which stays in a cache.
        """
        if KEYS in self.words:
            copied = load.keys * heads * attention.head_size + load.tokens * heads * latent.rotary_size
            written = load.keys * heads * latent.rotary_size
            accesses = 2 + written / copied
            yield strided("keys", copied, accesses, self.value_bytes, launches=3)

    def sums(self, tokens: int, hidden: int) -> Iterator[Kernel]:
        """Yield the sum of routed and shared experts."""
        if SUMS in self.words:
            yield element_wise("sum of experts", tokens * hidden, 2, 3, self.value_bytes)
