"""Recipes of a product: settings from published scripts, for results that do not state them.

A table states ranks, batches, and the place of the recipe. The recipe (`recipes.json`, each entry with its
source) has the dispatch of tokens to experts, recomputation, and the exchanges that overlap kernels. An entry
belongs to a release, a model, devices and datatypes; the first one that matches is taken.
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
    release: str  # pattern of the software's text after the product
    model: str  # beginning of the names of models
    devices: list[str]  # the text of the hardware names one of them; []: any
    plan: dict[str, Any]
    source: str
    products: list[str] = []  # datatypes of products, as in a plan; []: any
    when: dict[str, Any] = {}  # fields of the plan that the table must state

    def holds(self, release: str, model: str, hardware: str, stated: Mapping[str, Any]) -> bool:
        """Check whether the recipe applies to a row."""
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
    """The content of the file."""

    about: str
    recipes: list[Recipe]


@cache
def recipes() -> Recipes:
    """Read the file."""
    text = (files("et_sim.validation") / "recipes.json").read_text(encoding="utf-8")
    return msgspec.json.decode(text, type=Recipes)


def recipe_of(
    software: str, release: str, model: str, hardware: str, stated: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the fields of a plan from the recipe of a row, for fields that the row does not state."""
    for recipe in recipes().recipes:
        if recipe.software == software and recipe.holds(release, model, hardware, stated):
            return recipe.plan
    return {}
