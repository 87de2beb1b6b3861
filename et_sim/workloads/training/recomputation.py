"""The options of recomputation in the backward pass.

Modules are those of Megatron-Core: its `core_attn`, `layernorm`, `moe_act`, `mla_up_proj`, `mlp`, `moe` and
`shared_experts`. `op` is torchtitan's selective recomputation by operators: outputs of attention and of every
other product with weights are kept, all else is recomputed. `every:N` and `first:N` choose layers; with
`uniform:N`, each run of N layers keeps the input of its first one, and all layers of a run are recomputed
before their backward passes, as in Megatron's method of that name.
"""

from __future__ import annotations

from et_sim.basics.errors import FieldError, did_you_mean

NOTHING, SELECTIVE, FULL, OPERATORS = MODES = ("none", "selective", "full", "op")
CORE, NORMS, ACTIVATION, MLA_UP, MLP, MOE, SHARED = MODULES = (
    "core-attention",
    "norms",
    "activation",
    "mla-up",
    "mlp",
    "moe",
    "shared-experts",
)
EVERY, FIRST, UNIFORM = CHOICES = ("every", "first", "uniform")


def modules_of(recompute: str) -> frozenset[str]:
    """Return the modules that an option names; `selective` is the only mode that names one."""
    if recompute == SELECTIVE:
        return frozenset({CORE})
    return frozenset() if recompute in MODES else frozenset(recompute.split("+"))


def check_recompute(recompute: str, layers: str) -> None:
    """Refuse modes, modules and layers that do not exist."""
    words = [] if recompute in MODES else recompute.split("+")
    for word in words:
        if word not in MODULES or words.count(word) > 1:
            known = (*MODES, *MODULES) if len(words) == 1 else MODULES
            usual = f"known: {', '.join(MODES)}, or modules, as in norms+activation: {', '.join(MODULES)}"
            fault = f"names {word} twice" if word in MODULES else f"is {recompute!r}"
            raise FieldError(f"`recompute` {fault}", remedy=did_you_mean(word, known) or usual)
    choice, _, count = layers.partition(":")
    if layers and not (choice in CHOICES and count.isascii() and count.isdigit() and int(count) > 0):
        raise FieldError(
            f"`recompute_layers` is {layers!r}",
            remedy="give every:N, first:N or uniform:N, N from 1 up, as in every:2",
        )
    if choice == UNIFORM and recompute != FULL:
        raise FieldError(
            f"`recompute_layers` {layers} requires `recompute` {FULL}, and `recompute` is {recompute}",
            remedy=f"give `recompute` {FULL}: layers of a run are recomputed from its input alone",
        )
    if layers and recompute == NOTHING:
        raise FieldError(
            f"`recompute_layers` is {layers}, but nothing is recomputed",
            remedy="give `recompute`, as in full, or leave `recompute_layers` out",
        )


def is_chosen(layers: str, number: int) -> bool:
    """Return whether the option chooses a layer, counted from 0 on its part of the pipeline."""
    choice, _, count = layers.partition(":")
    if choice in ("", UNIFORM):
        return True
    return number % int(count) == 0 if choice == EVERY else number < int(count)


def run_length(layers: str) -> int:
    """Return the number of layers that are recomputed together, from the input of the first."""
    choice, _, count = layers.partition(":")
    return int(count) if choice == UNIFORM else 1
