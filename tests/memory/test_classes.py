"""What tensors are for, by their names."""

from __future__ import annotations

import pytest

from et_sim.memory import CLASSES, classes_of


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        ("weights:layer 3", "weights"),
        ("gradients:weight", "gradients"),
        ("optimizer:exp_avg", "optimizer"),
        ("activations:x", "activations"),
        ("temporary:y", "temporary"),
        ("unknown:weights", "unknown"),
        ("layer1.weight", "weights"),
        ("layer1.weight.grad", "gradients"),
        ("Adam.momentum.weight_0", "weights"),
        ("weight_0.momentum", "optimizer"),
        ("model.BIAS", "weights"),
        ("workspace", "temporary"),
        ("weightless", "unknown"),
        ("stage:weights", "weights"),
        ("mb0.transformer.0.x@0", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_name_says_what_a_tensor_is_for(tensor: str, found: str) -> None:
    assert [CLASSES[number] for number in classes_of([tensor])] == [found]
