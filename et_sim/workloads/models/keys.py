"""The keys of a model's `config.json`, checked and marked as used when they are read.

An unused key is listed in `without_effect.json`, which has the keys without effect on time, or else a remark
on the model names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field, json

from et_sim.basics.errors import UsageError, brief

WITHOUT_EFFECT = Path(__file__).parent / "without_effect.json"
MOST = 10**9
MOST_NAMED = 6  # keys in one remark
VISION = "vision_config"
OTHER_PARTS = {
    VISION: "only --image-tokens of serve and make prefill simulates this part of the model",
    "audio_config": "this part of the model is not simulated",
}
#: Operations of activation functions for each output; an exponential counts as four.
ACTIVATIONS = {"silu": 8, "swish": 8, "gelu": 8, "gelu_new": 8, "gelu_pytorch_tanh": 8, "relu2": 2, "relu": 1}


class ModelKeys(Struct, frozen=True):
    """The keys of one file, or of an object within it."""

    content: Mapping[str, Any]
    place: str
    used: set[str] = field(default_factory=set)

    def get(self, name: str) -> Any:
        """Return a value as it is; None: it is missing, or null."""
        self.used.add(name)
        return self.content.get(name)

    def is_named(self, name: str) -> bool:
        """Return whether the file has the key, also with null."""
        self.used.add(name)
        return name in self.content

    def inner(self, name: str) -> ModelKeys:
        """Return the keys of an object within the file."""
        content = self.get(name)
        if not isinstance(content, Mapping):
            raise self.fault(name, content, "give an object with the keys of the language model")
        return ModelKeys(content, f"{self.place}, {name}")

    def fault(self, name: str, value: object, remedy: str) -> UsageError:
        """Return the error of a missing or invalid value."""
        if value is None:
            return UsageError(f'key "{name}" is missing', place=self.place, remedy=remedy)
        return UsageError(f'key "{name}" is {brief(repr(value))}', place=self.place, remedy=remedy)

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return the number of the first key that the file has."""
        values = {name: self.get(name) for name in names}
        name = next((spelling for spelling, value in values.items() if value is not None), None)
        if name is None:
            if default is None:
                raise self.fault(names[0], None, "add it, a number")
            return default
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self.fault(name, value, f"give a whole number from {least} up")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the truth value of a key."""
        value = self.get(name)
        value = default if value is None and not self.is_named(name) else value
        if not isinstance(value, bool):
            raise self.fault(name, value, "give true or false")
        return value

    def text(self, name: str) -> str:
        """Return the text of a key."""
        value = self.content.get(name, "")
        self.used.add(name)
        if not isinstance(value, str):
            raise UsageError(f'key "{name}" is {value!r}', place=self.place, remedy="give a text")
        return value

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers from 0 up; None: it is missing."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
            raise self.fault(name, value, "give a list of whole numbers from 0 up")
        return tuple(value)

    def activation(self, *names: str) -> int:
        """Return the operations of the activation function that the first key names; without one, of SiLU."""
        name = next((spelling for spelling in names if self.get(spelling) is not None), None)
        if name is None:
            return ACTIVATIONS["silu"]
        value = self.text(name)
        if value not in ACTIVATIONS:
            raise self.fault(name, value, f"known: {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def drops(self, *names: str) -> bool:
        """Return whether a share of values is dropped in training; without a key, True."""
        shares = [share for name in names if (share := self.get(name)) is not None]
        return any(share != 0 for share in shares) if shares else True

    def refuse(self, name: str, usual: object, reason: str) -> None:
        """Refuse a value other than the usual one, if the key is there."""
        value = self.get(name)
        if value is not None and value != usual:
            raise self.fault(name, value, f"{reason}: only {usual!r} is simulated")

    def remarks(self) -> tuple[str, ...]:
        """Return remarks on unused keys that may have an effect."""
        unseen = [name for name in self.content if name not in self.used | without_effect()]
        others = [name for name in unseen if name in OTHER_PARTS]
        parts = tuple(f'{self.place}: "{name}": {OTHER_PARTS[name]}' for name in others)
        names = [f'"{brief(name)}"' for name in unseen if name not in others]
        if not names:
            return parts
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        noun = "the key" if len(names) == 1 else "the keys"
        return (
            *parts,
            f"{self.place}: {noun} {', '.join(names[:MOST_NAMED])}{more}: unknown, and not simulated",
        )


@lru_cache(maxsize=1)
def without_effect() -> frozenset[str]:
    """Return the keys without effect on time."""
    groups = json.decode(WITHOUT_EFFECT.read_bytes(), type=dict[str, list[str]])
    return frozenset(name for names in groups.values() for name in names)
