"""Exchanges of inference engines' own: all-reduces within a node, and all-to-alls of tokens with experts.

An all-reduce is one kernel that reads the memory of all peers over NVLink.

One shot: every rank reads all inputs and adds them up. Two shots: every rank adds up its part of all inputs,
and then reads the other parts. Ranks exchange flags first, and between the two shots:

    one shot   latency + peers x peer + peers x S / (share x link)
    two shots  latency + peers x peer + second shot + 2 peers / ranks x S / (share x link)

The faster one runs, up to the size from which the engine leaves all-reduces to its collective library. An
eager launch is bound by the host, and takes at least the engine's time for one.

DeepEP sends tokens to the ranks of their experts (dispatch) and sums up what comes back (combine), each in

    latency + a message between nodes
        + max(bytes within a node / (share x link), bytes to others / (share x card))

With low latency, a token is sent to each of its experts, and else to each rank that has some of them. Until
June 2025, low-latency kernels sent copies within a node over the cards, too. Copies of low latency occupy no
processors while they travel, if a hook receives them, as two halves of a batch do (deepseek-ai/DeepEP,
docs/legacy.md@0297fc8017).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from et_sim.basics.engine_names import BY_CARDS, DEEPEP, LOW_LATENCY, SGLANG, TRTLLM, VLLM

ONE_SHOT, TWO_SHOTS = "one-shot", "two-shots"
OF_ENGINES = (ONE_SHOT, TWO_SHOTS)
MOST_RANKS = 8
ENGINE_PROCESSORS = 36  # blocks of the kernel at most (vllm-project/vllm, csrc/custom_all_reduce.cuh)
MIB = 1 << 20


class EngineAllReduce(Struct, frozen=True):
    """The constants of an engine's all-reduce in us, launch in a graph included."""

    latency: float
    peer: float  # for each other rank
    second_shot: float
    share: float  # of the bandwidth of a GPU's links
    eager: float  # least time outside a graph
    most: int = 16 * MIB  # bytes; above, the collective library

    def way(self, ranks: int, size: int, link: float) -> tuple[str, float]:
        """Return the faster way and its time in a graph in us; `link` in GB/s of all links of a GPU."""
        peers, rate = ranks - 1, 1000 * self.share * link
        flags = self.latency + self.peer * peers
        one = flags + peers * size / rate
        two = flags + self.second_shot + 2 * peers / ranks * size / rate
        return (ONE_SHOT, one) if one <= two else (TWO_SHOTS, two)


# Fitted to all-reduces of bf16 up to 16 MiB on 2 and 8 GPUs of H200 (ai-dynamo/aiconfigurator 095f58a51c,
# Apache-2.0: SGLang 0.5.14, vLLM 0.24.0, TensorRT-LLM 1.3.0rc20); 4 GPUs were left out (docs/machines.md).
# `eager` is the median of sizes below 64 KiB; that of TensorRT-LLM is an estimate, as vLLM's.
ENGINE_ALL_REDUCES: Mapping[str, EngineAllReduce] = MappingProxyType(
    {
        SGLANG: EngineAllReduce(2.353, 0.138, 3.93, 0.658, 29.7),
        TRTLLM: EngineAllReduce(2.60, 0.081, 15.8, 0.615, 20.8),
        VLLM: EngineAllReduce(4.44, 0.048, 2.93, 0.641, 20.8),
    }
)


class ExpertExchange(Struct, frozen=True):
    """The constants of an all-to-all of tokens, the means of dispatch and combine."""

    latency: float  # us
    share: float  # of the bandwidth of a GPU's links
    processors: int = 0  # for that share; fewer carry in proportion less. 0: any number
    by_cards: bool = False  # copies within a node pass the cards, too
    travels_alone: bool = False  # kernels run while copies are sent and received, and none in between

    def time_us(
        self, within: float, between: float, message: float, link: float, rail: float, processors: int = 0
    ) -> float:
        """Return the time of bytes within the node and between nodes.

        `rail` is the rate of a rank's card, 0 without cards, where all copies pass the links of the node;
        `message` is a latency, 0 on one node; `processors` are those that it takes, 0: as many as it uses.
        """
        if self.by_cards and rail:
            within, between = 0.0, within + between
        outside = between / (1000 * SHARE_OF_CARDS * rail) if between else 0.0
        part = min(processors / self.processors, 1.0) if processors and self.processors else 1.0
        return self.latency + message + max(within / (1000 * self.share * part * link), outside)


# Fitted to 8 GPUs of H200 and hidden sizes of 2,048, 5,120 and 6,144, with 4 or more of 128 or more experts
# (ai-dynamo/aiconfigurator 095f58a51c, Apache-2.0: DeepEP in SGLang 0.5.12; normal: 12 to 24 processors);
# other hidden sizes were left out (docs/collectives.md).
EXPERT_EXCHANGES: Mapping[str, ExpertExchange] = MappingProxyType(
    {
        DEEPEP: ExpertExchange(30.6, 0.591, 19),
        LOW_LATENCY: ExpertExchange(10.1, 0.532, travels_alone=True),
        BY_CARDS: ExpertExchange(10.1, 0.532, by_cards=True, travels_alone=True),
    }
)
# Share of the rate of a card. Fitted to dispatch and combine with low latency on 16, 64 and 256 GPUs of H800
# (deepseek-ai/DeepEP, docs/legacy.md@0297fc8017, MIT); 32 and 128 GPUs, and the tables of other kernels, were
# left out (docs/collectives.md).
SHARE_OF_CARDS = 0.87

# Bytes that normal kernels pass through the memory of a GPU for each byte that it sends: between nodes, a
# copy is written into a buffer of the sender's card and one of the receiver's; within a node, dispatch writes
# it into a buffer of the receiver and then to its place, and combine reads it from the outputs of experts and
# writes it into such a buffer (deepseek-ai/DeepEP, csrc/kernels/internode.cu@008e399eb0, and intranode.cu
# @031a5c4920, which has the two within a node). Not counted are a read of each token before dispatch, its sum
# after combine, copies of a GPU to itself, and reads soon after a write, taken to come from the cache.
TRAFFIC_OF_COPIES = 2


def copies(exchange: str, chosen: int, ranks: int) -> float:
    """Return the copies of a token that leave for experts spread evenly over some ranks, its own included."""
    if exchange in (LOW_LATENCY, BY_CARDS):
        return chosen
    return ranks * (1 - (1 - 1 / ranks) ** chosen)
