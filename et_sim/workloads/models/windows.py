"""The layers of a file that see a window of tokens only, or have a recurrent state."""

from __future__ import annotations

from et_sim.basics.errors import UsageError, brief
from et_sim.workloads.models.keys import ModelKeys

SLIDING, FULL, CHUNKED, LINEAR = (
    "sliding_attention",
    "full_attention",
    "chunked_attention",
    "linear_attention",
)


def windows_of(keys: ModelKeys, layers: int, pattern: int | None = None) -> tuple[int, ...]:
    """Return the windows of layers, repeated from the first one on; () and 0: all tokens before.

    `pattern`: if the file names no layers, the last layer of each such number has no window.
    """
    is_given = keys.get("sliding_window") is not None
    types = layer_types(keys, layers, (SLIDING, FULL))
    if not (is_given or keys.is_named("use_sliding_window")) and SLIDING in (types or ()):
        raise UsageError(
            f'key "layer_types" has {SLIDING}, which requires the missing key "sliding_window"',
            place=keys.place,
            remedy="add it, a number of tokens",
        )
    uses, last = _uses_windows(keys), keys.get("max_window_layers")
    if not is_given or not uses:
        return ()
    window = keys.number("sliding_window")
    if types is not None:
        return tuple(window if layer_type == SLIDING else 0 for layer_type in types)
    if last is not None:
        first = keys.number("max_window_layers", least=0)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    names = ("sliding_window_pattern", "_sliding_window_pattern")
    if pattern is not None or any(keys.get(name) is not None for name in names):
        return (*(window,) * (keys.number(*names, default=pattern) - 1), 0)
    return (window,)


def _uses_windows(keys: ModelKeys) -> bool:
    """Return whether a file's windows apply; in families of Qwen they require `use_sliding_window`."""
    is_usual = not keys.text("model_type").startswith("qwen")
    return keys.flag("use_sliding_window", default=is_usual)


def layer_types(keys: ModelKeys, layers: int, known: tuple[str, ...]) -> list[str] | None:
    """Return one of the known words for each layer; None: the file has none."""
    types = keys.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        raise UsageError(
            f'key "layer_types" is not a list of {layers} words',
            place=keys.place,
            remedy="give a word for each layer",
        )
    if unknown := next((layer_type for layer_type in types if layer_type not in known), None):
        raise UsageError(
            f'key "layer_types" has {brief(repr(unknown))}',
            place=keys.place,
            remedy=f"known: {', '.join(known)}",
        )
    return types


def refuse_windows(keys: ModelKeys) -> None:
    """Refuse a window in a file of a family that has none."""
    is_given = keys.get("sliding_window") is not None
    if is_given and _uses_windows(keys):
        raise UsageError(
            f'key "sliding_window" is not supported by {keys.text("model_type")}',
            place=keys.place,
            remedy="leave it out",
        )
