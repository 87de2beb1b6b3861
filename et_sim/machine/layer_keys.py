"""Keys that say how a layer file is run: options of ASTRA-sim 1.0, which any system file may have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from et_sim.machine.keys import Key, Kind
from et_sim.machine.model import LayerSettings

LAYER_KEYS = (
    Key("num-passes", Kind.INTEGER, "How often a layer file is run through.", default=1, minimum=1),
    Key("compute-scale", Kind.NUMBER, "Multiplies the computations of a layer file.", default=1.0),
    Key("comm-scale", Kind.NUMBER, "Multiplies the bytes of a layer file.", default=1.0),
)
OPTIONAL_LAYER_KEYS = tuple(replace(key, default=None, reference="Not known there.") for key in LAYER_KEYS)


def layer_settings(values: dict[str, Any]) -> LayerSettings:
    """What the keys say; those that are missing have their defaults."""
    full: dict[str, Any] = {key.name: values.get(key.name, key.default) for key in LAYER_KEYS}
    return LayerSettings(full["num-passes"], full["compute-scale"], full["comm-scale"])
