"""What tensors are for: weights, gradients, optimizer states, activations, temporary ones.

A name says it: by a class and a colon in front (`weights:layer1`), or else by the last word in it that stands
for a class (`layer1.weight.grad` is a gradient). Of other names nothing is known.

Not here: what else is known of tensors (`et_sim.trace.tensors`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

CLASSES = ("weights", "gradients", "optimizer", "activations", "temporary", "unknown")
UNKNOWN = CLASSES.index("unknown")
_WORDS = {
    "weights": ("weight", "weights", "bias", "biases", "parameter", "parameters", "param", "params"),
    "gradients": ("gradient", "gradients", "grad", "grads"),
    "optimizer": ("optimizer", "optim", "momentum", "variance"),
    "activations": ("activation", "activations"),
    "temporary": ("temporary", "temp", "tmp", "workspace", "scratch"),
}
CLASS_OF_WORD = MappingProxyType(
    {word: CLASSES.index(name) for name, words in _WORDS.items() for word in words}
)
_LETTERS = re.compile(r"[A-Za-z]+")


def class_of(tensor: str) -> int:
    """The class of a tensor, by its name, as an index into CLASSES."""
    said, colon, _ = tensor.partition(":")
    if colon and said in CLASSES:
        return CLASSES.index(said)
    known = [CLASS_OF_WORD[word] for word in _LETTERS.findall(tensor.lower()) if word in CLASS_OF_WORD]
    return known[-1] if known else UNKNOWN


def classes_of(tensors: Sequence[str]) -> Any:
    """The classes of tensors, by their names."""
    return np.array([class_of(tensor) for tensor in tensors], np.int8)
