"""The options of a plan of training, with their kinds, bounds and defaults."""

from __future__ import annotations

from functools import partial
from operator import not_

from msgspec import Struct

from et_sim.documents.kinds import choice, count, counts, flag, number, text
from et_sim.workloads import exchange_names
from et_sim.workloads.models.formats import FORMATS
from et_sim.workloads.pipeline import SCHEDULES
from et_sim.workloads.software import DEFAULT
from et_sim.workloads.training import expert_plan
from et_sim.workloads.training.recomputation import MODES, MODULES
from et_sim.workloads.training.value_types import BF16, CACHE_BITS, HALVES

ORDER = "tp-cp-ep-dp-pp"
RING, ALL_GATHER, ALL_TO_ALL = CONTEXT_ATTENTION = ("ring", "all-gather", "all-to-all")
ZIGZAG, IN_ORDER = CONTEXT_BALANCE = ("zigzag", "none")
AS_VALUES = "values"
PRODUCTS = (AS_VALUES, *FORMATS)  # the last ones only in inference
CACHE_TYPES = (AS_VALUES, *CACHE_BITS)
MOST = 10**9
SMALLEST = 1e-9

_positive = partial(count, stated=True, minimum=1, maximum=MOST)
_amount = partial(count, maximum=MOST)  # 0 by default: none, or not limited
_rate = partial(number, stated=True, form="a number > 0", minimum=SMALLEST, maximum=MOST)
_on = partial(flag, default=True, becomes=not_)  # the option switches it off


class PlanOptions(Struct, frozen=True):
    """Options of a plan, as given."""

    tensor: int = _positive("ranks that share every layer (tensor parallelism)", 1, name="tp")
    context: int = _positive("ranks that share every sequence (context parallelism)", 1, name="cp")
    data: int = _positive(
        "replicas of the model (data parallelism); in inference, groups of ranks that have sequences of their"
        " own and share the experts",
        1,
        name="dp",
    )
    pipeline: int = _positive("stages of the pipeline", 1, name="pp")
    expert: int = _positive(
        "ranks that the experts are spread over, among those of tp x cp x dp", 1, name="ep"
    )
    expert_skew: str = text(
        "loads of experts: zipf:S, or a JSON list of them (default: even)", "", may_be_empty=True
    )
    expert_seed: int = _amount("seed that chooses the busy experts, with zipf", 0)
    expert_tensor: int = _positive(
        "ranks that share every expert, each of which has a share of it", 1, name="etp"
    )
    expert_exchange: str = choice(
        "exchange of tokens with their experts",
        exchange_names.ALL_TO_ALL,
        stated=True,
        choices=exchange_names.EXCHANGES,
    )
    expert_nodes: int = _amount(
        "nodes that the experts of a token are on (default: as the model limits them)", 0
    )
    node_ranks: int = _positive("ranks of a node, for exchanges of experts (default: of --machine, or 8)", 8)
    dispatch: str = choice(
        "numbers in which tokens are sent to experts", AS_VALUES, stated=True, choices=expert_plan.DISPATCH
    )
    capacity_factor: float = number(
        "most tokens that an expert takes of a rank, as a factor on the mean (default: all)",
        0.0,
        maximum=MOST,
    )
    fused_routing: bool = _on(
        "choose, sort and weigh the tokens of experts in many kernels", name="unfused-routing"
    )
    overlap_experts: bool = flag(
        "exchange the tokens of a forward pass while a backward pass computes, and the other way round; in"
        " inference, those of half of a batch while the other half computes",
        False,
    )
    attention_parts: bool = flag(
        "with --overlap-experts, in inference: halves of passes without prompts take turns within attention,"
        " too, in the order of SGLang's decoding",
        False,
    )
    mtp_layers: int = _amount("layers that predict further tokens, each with a head", 0)
    order: str = text(
        f"order of the axes of ranks, the innermost first: {ORDER}", ORDER, may_be_empty=True, stated=True
    )
    schedule: str = choice("schedule of the pipeline", "1f1b", stated=True, choices=tuple(SCHEDULES))
    chunks: int = _positive("parts of the model on each rank, for the schedule interleaved", 1)
    micro_batches: int = _positive("micro-batches of a step, in every replica", 8)
    global_batch: int = _amount("sequences of a step in all replicas, in place of --micro-batches", 0)
    batch: int = _positive("sequences, images or samples in a micro-batch", 1)
    stage_layers: tuple[int, ...] = counts(
        "layers of each part of the pipeline, as in 7,8,8,7 (default: all equal)", (), may_be_empty=True
    )
    sequence_parallel: bool = flag("tensor-parallel ranks share the tokens between their products", False)
    context_attention: str = choice(
        "exchange of keys and values, with cp", RING, stated=True, choices=CONTEXT_ATTENTION
    )
    context_balance: str = choice(
        "with cp and a causal mask: zigzag, a piece from either end for each rank; or none, pieces in order",
        ZIGZAG,
        stated=True,
        choices=CONTEXT_BALANCE,
    )
    document_tokens: int = _amount(
        "tokens of a document, which limits attention (default: whole sequences)", 0
    )
    recompute: str = text(
        f"activations in the backward pass: {', '.join(MODES)}, or modules, as in norms+activation:"
        f" {', '.join(MODULES)}",
        "none",
        may_be_empty=True,
        stated=True,
    )
    recompute_layers: str = text(
        "recomputed layers: every:N or first:N of a stage (default: all), or runs: uniform:N",
        "",
        may_be_empty=True,
    )
    offload_activations: bool = flag(
        "activations of layers wait in remote memory for their backward pass", False
    )
    zero: int = _amount(
        "sharing among replicas: 1 optimizer states, 2 also gradients, 3 also weights (FSDP)",
        0,
        maximum=3,
        form="0, 1, 2 or 3",
    )
    shard: int = _amount("number of replicas that share (default: all of them)", 0)
    prefetch: int = _amount("layers whose shared weights are gathered ahead", 1, stated=True)
    bucket: int = _positive("bytes of gradients that are reduced together", 25 << 20)
    overlap_tensor: bool = _on(
        "exchange gradients of inputs before those of weights are computed", name="no-overlap-tensor"
    )
    overlap_pipeline: bool = _on(
        "stages wait for their sends and receives before they go on", name="no-overlap-pipeline"
    )
    scatter_gather: bool = flag(
        "tensor-parallel ranks send a share each to the next stage, which gathers all", False
    )
    tensor_overlap: int = _positive("chunks in which products overlap with their own exchange (async TP)", 1)
    causal: bool = _on("count masked scores, too", name="full-attention")
    fused_attention: bool = _on(
        "write the scores of attention to memory, and keep them", name="unfused-attention"
    )
    dropout: bool = _on("leave out dropout, of models that have it", name="no-dropout")
    value_bytes: int = _positive("bytes of a weight or activation", 2)
    value_type: str = text(
        f"numbers of values of 2 bytes: {' or '.join(HALVES)} (default: {BF16}, unless --machine has only"
        " the other)",
        "",
        may_be_empty=True,
    )
    lora_rank: int = _amount(
        "freeze all weights, and train adapters of this rank beside products (LoRA); in inference, adapters"
        " that the sequences of a batch use",
        0,
    )
    adapters: int = _amount(
        "adapters that a replica has, one of which each sequence uses, in inference (default: 1)", 0
    )
    products: str = choice(
        "numbers that products with weights compute with; in inference, that weights are stored in (default:"
        f" {AS_VALUES}; in inference, those that the model's file states)",
        "",
        choices=PRODUCTS,
        may_be_empty=True,
    )
    expert_products: str = choice(
        "the same of routed experts alone, in inference", "", choices=PRODUCTS, may_be_empty=True
    )
    redundant_experts: int = _amount(
        "copies of experts, in inference: experts and copies are spread evenly over the ranks", 0
    )
    experts_apart: bool = flag(
        "experts on ep ranks of their own, beside the tp x dp ranks of attention, in inference", False
    )
    cache_type: str = choice(
        "numbers of cached keys and values (default: those that the model's file states, or values)",
        "",
        choices=CACHE_TYPES,
        may_be_empty=True,
    )
    computes: str = text(
        "datatypes that devices multiply in, as in bf16,fp8; weights stored in others are read so, and"
        " products compute with values (default: of --machine, or all)",
        "",
        may_be_empty=True,
    )
    gather_cast: bool = flag(
        "with zero 3 and products fp8 or fp4: replicas cast their shares, then gather", False
    )
    gradient_bytes: int = _positive("bytes of a gradient that replicas exchange", 2)
    sum_bytes: int = _positive(
        "bytes of a gradient that micro-batches are added up in, as Megatron's main gradients", 4
    )
    master_bytes: int = _amount(
        "bytes of the optimizer for each weight: a copy and two moments", 12, stated=True
    )
    tflops: float = _rate("rate of a rank's kernels, in 10^12 operations per second", 200.0)
    memory_gbps: float = _rate("memory rate of a rank's kernels, in 10^9 bytes per second", 2000.0)
    software: str = text(
        f"software of the step: a description by name, or a JSON file (default: {DEFAULT})",
        "",
        may_be_empty=True,
    )
