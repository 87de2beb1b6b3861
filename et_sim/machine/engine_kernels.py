"""Attention and experts of inference engines: constants of their kernels, which hold on any GPU.

Attention of few queries (`et_sim.compute.tiles`) takes a launch, a time for each wave of tiles of 64 rows and
for each doubling of its keys, and the longer of its arithmetic and traffic, at a part of the GPU's peak and
bandwidth. A machine's own constants of these kinds are those of no engine, and the engine's replace them.

Fitted to some numbers of heads in tables of ai-dynamo/aiconfigurator 095f58a51c (Apache-2.0), the others left
out (docs/compute.md): TensorRT-LLM 1.3.0rc20 on H100, vLLM 0.24.0 on H200, and single tokens of SGLang 0.5.14
with a compressed cache on H200, from which its prompts follow. Where an engine was not measured, it has the
constants of another: TensorRT-LLM and vLLM those of SGLang for a compressed cache, SGLang those of vLLM else.

Grouped products of experts have tiles of 16 rows, which take some steps more (`prologue`), and their traffic
is not hidden by arithmetic: weights of each expert with rows are read, and then rows computed. Fitted to
TensorRT-LLM on H200, experts on 2 and 8 ranks left out; other engines have the same constants, except for
weights in 4 bits with products in 16, which only TensorRT-LLM has, and for fp8 in SGLang: it runs one Triton
kernel for all numbers, and has the constants of bf16, which measured servings support.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from et_sim.basics.engine_names import PADDED_EXPERTS, SGLANG, TRTLLM, VLLM
from et_sim.basics.kernel_names import DECODE_ATTENTION, GROUPED_BLOCKS, GROUPED_NARROW, LATENT_ATTENTION
from et_sim.machine.efficiencies import Curve, Tile
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.roofline import RooflineDevice
from et_sim.machine.system import System

ROWS = 64  # of a tile: those of a group of warps on Hopper
PART_OF_PEAK = 0.587  # of arithmetic with a compressed cache; attention of other kinds is bound by traffic
FP8 = f"{DECODE_ATTENTION} fp8"


def _kind(launch: float, tile: float, doubling: float, part_of_bandwidth: float) -> KernelKind:
    """Return the constants of a kind; times in us."""
    return KernelKind(
        efficiency=Curve(PART_OF_PEAK),
        memory_efficiency=Curve(part_of_bandwidth),
        launch_ns=1000 * launch,
        row_tile=ROWS,
        tile_ns=1000 * tile,
        doubling_ns=1000 * doubling,
    )


def _grouped(
    launch: float, prologue: float, peak: float = 0.97, bandwidth: float = 0.97, exposed: float = 1.0
) -> KernelKind:
    """Return the constants of grouped products; the launch in us, with the kernels that sort rows."""
    return KernelKind(
        efficiency=Curve(1.0),
        memory_efficiency=Curve(bandwidth),
        launch_ns=1000 * launch,
        tiles=(Tile(16, 128, 128, peak),),
        prologue=prologue,
        split_k=1,
        exposed=exposed,
    )


_EXPERTS = {
    "grouped_gemm": _grouped(12.9, 9.1),
    "grouped_gemm fp8": _grouped(13.1, 22.1),
    GROUPED_BLOCKS: _grouped(10.8, 62.9),
}
_LATENT = {LATENT_ATTENTION: _kind(6.20, 5.92, 1.28, 0.916)}
_VLLM = {DECODE_ATTENTION: _kind(8.39, 2.94, 0.353, 0.895), FP8: _kind(9.47, 3.09, 0.335, 0.569)}
_NARROW = {GROUPED_NARROW: _grouped(51.6, 11.5, 0.334, 0.735, exposed=0.0)}
_TRTLLM = {DECODE_ATTENTION: _kind(4.90, 4.09, 0.718, 0.868), FP8: _kind(6.19, 0.964, 0.827, 0.905)}
# Engines that multiply tokens which DeepEP brought, or rows of padded experts, in numbers with scales of
# blocks, by DeepGEMM, whose constants devices have (sgl-project/sglang, moe/ep_moe/layer.py: DeepEPMoE;
# vllm-project/vllm, fused_moe/deep_gemm_moe.py).
WITH_DEEPGEMM = (SGLANG, VLLM)
ENGINE_KERNELS: Mapping[str, Mapping[str, KernelKind]] = MappingProxyType(
    {
        SGLANG: _VLLM | _LATENT | dict.fromkeys(_EXPERTS, _EXPERTS["grouped_gemm"]),
        TRTLLM: _TRTLLM | _LATENT | _EXPERTS | _NARROW,
        VLLM: _VLLM | _LATENT | _EXPERTS,
    }
)


def with_engine_kernels(system: System, engine: str, *, deepgemm: bool = False) -> System:
    """Return the system with the kernels of an engine on devices that have processors.

    `deepgemm`: experts have rows as DeepGEMM takes them.
    """
    rules = []
    for rule in system.compute:
        device = rule.settings
        if isinstance(device, RooflineDevice) and device.processors:
            own = ENGINE_KERNELS[engine]
            if deepgemm and engine in WITH_DEEPGEMM and _has(device, GROUPED_BLOCKS):
                own = {name: kind for name, kind in own.items() if name != GROUPED_BLOCKS}
            kinds = MappingProxyType({**device.kinds, **own})
            rule = replace(rule, settings=replace(device, kinds=kinds))
        rules.append(rule)
    return replace(system, compute=tuple(rules))


def words_on(system: System, separate: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of an engine which hold on a machine: others than Hopper have no padded experts."""
    devices = (rule.settings for rule in system.compute)
    if any(isinstance(device, RooflineDevice) and _has(device, GROUPED_BLOCKS) for device in devices):
        return separate
    return tuple(word for word in separate if word != PADDED_EXPERTS)


def _has(device: RooflineDevice, kind: str) -> bool:
    """Return whether a device has constants of a kind, for some datatype."""
    return any(name.partition(" ")[0] == kind for name in device.kinds)
