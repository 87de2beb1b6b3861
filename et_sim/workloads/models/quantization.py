"""Formats of weights and caches that a model's file states: "quantization_config", or "hf_quant_config".

The file names a method, and modules that keep the numbers of values. Modules are those of published programs;
a product of a layer is stored in values if one of its modules is excluded. Routers, norms, the embedding and
the head always are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError, brief, did_you_mean
from et_sim.workloads.models.formats import (
    FP8,
    INT4,
    MXFP4,
    NVFP4,
    PRODUCT_NAMES,
    LayerFormats,
    WeightFormat,
)
from et_sim.workloads.models.keys import ModelKeys

IN_FILE, BESIDE = "quantization_config", "hf_quant_config"
#: Names of layers in published programs, before the number.
STEMS = (
    "model.layers.",
    "language_model.model.layers.",
    "model.language_model.layers.",
    "backbone.layers.",
)
_HALVES = ("self_attn", "mixer")
_PARTS = ("mlp", "feed_forward", "mixer")
_UP = ("gate_proj", "up_proj", "gate_up_proj", "w1", "w3")
_DOWN = ("down_proj", "w2")


def _paths(folders: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}.{name}" for folder in folders for name in names)


_SHARED = tuple(f"{part}.{name}" for part in _PARTS for name in ("shared_expert", "shared_experts"))
_ROUTED = tuple(f"{part}.experts{each}" for part in (*_PARTS, "block_sparse_moe") for each in ("", ".0"))
#: Modules of each product within a layer.
MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "qkv": _paths(_HALVES, ("q_proj", "k_proj", "v_proj", "qkv_proj")),
        "query": _paths(_HALVES, ("q_proj",)),
        "query down": _paths(_HALVES, ("q_a_proj",)),
        "query up": _paths(_HALVES, ("q_b_proj",)),
        "key-value down": _paths(_HALVES, ("kv_a_proj_with_mqa",)),
        "key-value up": _paths(_HALVES, ("kv_b_proj",)),
        "attention output": _paths(_HALVES, ("o_proj",)),
        "index queries": ("self_attn.indexer.wq_b",),
        "index keys": ("self_attn.indexer.wk",),
        "recurrence in": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "mixer.in_proj"),
        "recurrence out": ("linear_attn.out_proj", "mixer.out_proj"),
        "feed-forward up": _paths(_PARTS, _UP),
        "feed-forward down": _paths(_PARTS, _DOWN),
        "shared expert up": _paths(_SHARED, _UP),
        "shared expert down": _paths(_SHARED, _DOWN),
        "experts up": _paths(_ROUTED, _UP),
        "experts down": _paths(_ROUTED, _DOWN),
    }
)


class StoredNumbers(Struct, frozen=True):
    """The numbers that a file states: formats of layers, and the type of the cache."""

    formats: tuple[LayerFormats, ...] = ()  # layer by layer and again; (): all as values
    cache: str = ""  # empty: as values


class _Group(Struct, frozen=True):
    """A format, and the modules that have it."""

    form: WeightFormat
    targets: tuple[str, ...] = ()  # (): all


def stored_numbers(keys: ModelKeys, layers: int) -> StoredNumbers:
    """Return the numbers that a file states for a model of some layers."""
    beside, given = keys.get(BESIDE), keys.get(IN_FILE)
    name = IN_FILE if given is not None else "compression_config"
    given = keys.get(name) if given is None else given
    if beside is not None:
        name = BESIDE
        given = beside.get("quantization") if isinstance(beside, Mapping) else beside
        if isinstance(given, Mapping):
            given = {"quant_method": "modelopt", **given}
    if given is None:
        return StoredNumbers()
    if not isinstance(given, Mapping):
        raise keys.fault(name, given, "give an object")
    inner = ModelKeys(given, f"{keys.place}, {name}")
    method = inner.text("quant_method")
    if method not in _METHODS:
        known = did_you_mean(method, tuple(_METHODS)) or f"known: {', '.join(_METHODS)}"
        raise inner.fault("quant_method", method or None, f"{known}; or leave {name} out")
    groups = _METHODS[method](inner)
    excluded = _excluded(inner)
    formats = tuple(_of_layer(layer, groups, excluded) for layer in range(layers))
    return StoredNumbers(formats[:1] if len(set(formats)) == 1 else formats, _cache(inner))


def _of_layer(layer: int, groups: tuple[_Group, ...], excluded: tuple[str, ...]) -> LayerFormats:
    found = ((name, _format_of(layer, name, groups, excluded)) for name in PRODUCT_NAMES)
    return LayerFormats(tuple((name, form) for name, form in found if form is not None))


def _format_of(
    layer: int, product: str, groups: tuple[_Group, ...], excluded: tuple[str, ...]
) -> WeightFormat | None:
    names = tuple(f"{stem}{layer}.{module}" for stem in STEMS for module in MODULES[product])
    if any(is_named(pattern, name) for pattern in excluded for name in names):
        return None
    for group in groups:
        if not group.targets or any(is_named(pattern, name) for pattern in group.targets for name in names):
            return group.form
    return None


def is_named(pattern: str, module: str) -> bool:
    """Return whether a pattern of a file names a module, or one that it is in.

    A pattern is a regular expression after "re:", a text with stars, or a part of a name.
    """
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    if "*" in pattern:
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")
    return f".{pattern}." in f".{module}."


def _excluded(keys: ModelKeys) -> tuple[str, ...]:
    """Return the patterns of modules that keep values."""
    found: list[str] = []
    for name in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        words = keys.get(name) or []
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise keys.fault(name, words, "give a list of names of modules")
        found += words
    for pattern in found:
        _check(keys, pattern)
    return tuple(found)


def _check(keys: ModelKeys, pattern: str) -> None:
    """Refuse a regular expression that is none."""
    try:
        re.compile(pattern[3:] if pattern.startswith("re:") else "")
    except re.error as error:
        raise UsageError(
            f"the pattern {brief(repr(pattern))} is no regular expression: {error}",
            place=keys.place,
            remedy="correct it",
        ) from None


def _cache(keys: ModelKeys) -> str:
    """Return the datatype of the cache that a file states."""
    scheme, word = keys.get("kv_cache_scheme"), keys.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        word = f"{'INT' if scheme.get('type') == 'int' else 'FP'}{scheme.get('num_bits', 8)}"
    types = {"FP8": "fp8", "INT8": "int8", "NVFP4": "fp4", "FP4": "fp4"}
    if word is None:
        return ""
    if word not in types:
        raise keys.fault("kv_cache_quant_algo", word, f"known: {', '.join(types)}")
    return types[word]


def _fp8(keys: ModelKeys) -> tuple[_Group, ...]:
    block = keys.numbers("weight_block_size")
    if block is None:
        return (_Group(FP8),)
    if len(block) != 2 or not all(block):
        raise keys.fault("weight_block_size", list(block), "give two numbers, such as [128, 128]")
    return (_Group(WeightFormat(8, (block[0], block[1]), computes="fp8")),)


def _by_channel(_keys: ModelKeys) -> tuple[_Group, ...]:
    return (_Group(WeightFormat(8, (1, 0), computes="fp8")),)


def _mxfp4(_keys: ModelKeys) -> tuple[_Group, ...]:
    return (_Group(MXFP4),)


def _integers(keys: ModelKeys) -> tuple[_Group, ...]:
    """Return the format of AWQ and GPTQ: groups with a scale and, if not symmetric, a zero point."""
    bits, size = keys.number("bits", default=4), keys.get("group_size")
    size = 0 if size == -1 else keys.number("group_size", default=INT4.block[1])
    has_zeros = keys.flag("zero_point", default=not keys.flag("sym", default=True))
    return (_Group(WeightFormat(bits, (1, size), INT4.scale_bits + bits * has_zeros)),)


def _modelopt(keys: ModelKeys) -> tuple[_Group, ...]:
    if keys.get("config_groups") is not None:
        return _compressed(keys)
    word, algorithms = keys.text("quant_algo"), {"FP8": FP8, "NVFP4": NVFP4, "W4A16_AWQ": INT4}
    if word not in algorithms:
        raise keys.fault("quant_algo", word or None, f"known: {', '.join(algorithms)}")
    form = algorithms[word]
    size = keys.number("group_size", default=form.block[1] or 1)
    block = (form.block[0], size) if form.block[1] else form.block
    return (_Group(WeightFormat(form.bits, block, form.scale_bits, form.computes)),)


def _compressed(keys: ModelKeys) -> tuple[_Group, ...]:
    """Return the groups of a file of compressed-tensors."""
    groups = keys.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise keys.fault("config_groups", groups, "give an object for each group of modules")
    return tuple(_groups(keys, groups))


def _groups(keys: ModelKeys, groups: Mapping[str, Any]) -> Iterator[_Group]:
    for name, group in groups.items():
        if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
            raise keys.fault("config_groups", name, 'give each group the object "weights"')
        targets = tuple(word for word in group.get("targets", ()) if isinstance(word, str))
        for pattern in targets:
            _check(keys, pattern)
        weights = ModelKeys(group["weights"], f"{keys.place}, {name}")
        yield _Group(_scheme(weights, group.get("input_activations")), () if "Linear" in targets else targets)


def _scheme(weights: ModelKeys, inputs: Any) -> WeightFormat:
    """Return the format of weights, which computes in their type if inputs are cast, too."""
    bits, is_float = weights.number("num_bits"), weights.text("type") == "float"
    strategy, size = weights.text("strategy"), weights.get("group_size")
    size = weights.number("group_size") if size not in (None, -1) else 0
    computes = ""
    if isinstance(inputs, Mapping):
        cast = ModelKeys(inputs, weights.place).number("num_bits", default=bits)
        computes = f"{'fp' if is_float else 'int'}{cast}" if cast <= 8 else ""
    if strategy == "block":
        first, second = (*(weights.numbers("block_structure") or ()), 128, 128)[:2]
        return WeightFormat(bits, (first, second), computes=computes)
    if size:
        scale_bits = 8 if is_float and bits == 4 else INT4.scale_bits
        return WeightFormat(bits, (1, size), scale_bits, computes, "fp4" if bits == 4 and computes else "")
    return WeightFormat(bits, (1, 0) if strategy == "channel" else (0, 0), computes=computes)


_METHODS: Mapping[str, Callable[[ModelKeys], tuple[_Group, ...]]] = MappingProxyType(
    {
        "fp8": _fp8,
        "fbgemm_fp8": _by_channel,
        "mxfp4": _mxfp4,
        "awq": _integers,
        "gptq": _integers,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
        "compressed-tensors": _compressed,
    }
)
