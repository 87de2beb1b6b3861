"""Recipes of a product: settings that published results do not state, and that its own scripts give.

A table states ranks and batches, and where the recipe is; how tokens get to experts, what is computed again
and which exchanges hide behind kernels stand in the recipe (`recipes.json`, each entry with its source). An
entry is of a release, a model, devices and datatypes; the first one that fits is taken.

Not here: descriptions of software, which hold for all models (`et_sim.workloads.software`), and columns of
tables (`steps`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one or several recipes."""

    software: str
    release: str  # what the text of the software has behind the product, as a pattern
    model: str  # with which names of models begin
    devices: list[str]  # of which one is named by the text of the hardware; []: any
    plan: dict[str, Any]
    source: str
    products: list[str] = []  # datatypes of products, as a plan has them; []: any
    when: dict[str, Any] = {}  # fields of the plan that the table states

    def holds(self, release: str, model: str, hardware: str, stated: Mapping[str, Any]) -> bool:
        """Return whether it is the recipe of a row."""
        return (
            re.search(rf"(?<![\d.]){self.release}", release) is not None
            and model.startswith(self.model)
            and (
                not self.devices or any(re.search(rf"(?<![A-Z]){word}\b", hardware) for word in self.devices)
            )
            and (not self.products or stated.get("products") in self.products)
            and all(stated.get(name) == value for name, value in self.when.items())
        )


class Recipes(Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    about: str
    recipes: list[Recipe]


@cache
def recipes() -> Recipes:
    """Return what the file holds."""
    text = (files("et_sim.validation") / "recipes.json").read_text(encoding="utf-8")
    return msgspec.json.decode(text, type=Recipes)


def recipe_of(
    software: str, release: str, model: str, hardware: str, stated: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the fields of a plan that the recipe of a row gives, and the row does not state."""
    for recipe in recipes().recipes:
        if recipe.software == software and recipe.holds(release, model, hardware, stated):
            return recipe.plan
    return {}
