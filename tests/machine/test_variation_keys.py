"""The key `variation` of the system file: accepted entries, and every refusal."""

from __future__ import annotations

from typing import Any

import pytest

from et_sim.basics.errors import MachineError
from et_sim.machine.readers import read_machine
from et_sim.machine.variation import Family, SharedBy, Variation, VariationLevel, VariedKind

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
PLAIN = {"kind": "kernel", "level": "event", "family": "log-normal", "spread": 0.1}


def read(*entries: Any) -> tuple[Variation, ...]:
    return read_machine(system={"variation": list(entries)}, network=NETWORK).system.variation


def test_an_entry_has_the_defaults_of_a_draw_for_each_rank() -> None:
    (entry,) = read(PLAIN)
    assert (entry.kind, entry.level, entry.family) == (
        VariedKind.KERNEL,
        VariationLevel.EVENT,
        Family.LOG_NORMAL,
    )
    assert (entry.spread, entry.factor, entry.correlation, entry.shared) == (0.1, 1.0, 0.0, SharedBy.RANK)


def test_mixtures_and_empirical_factors_are_read() -> None:
    parts = [{"weight": 0.99, "spread": 0.01}, {"weight": 0.01, "factor": 2.5}]
    mixture, empirical = read(
        {"kind": "kernel", "level": "event", "family": "mixture", "parts": parts},
        {"kind": "collective", "level": "event", "family": "empirical", "factors": [0.98, 1, 1.4]},
    )
    assert [(part.weight, part.factor, part.spread) for part in mixture.parts] == [
        (0.99, 1.0, 0.01),
        (0.01, 2.5, 0.0),
    ]
    assert empirical.factors == (0.98, 1.0, 1.4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "gpu"}, 'key "kind" is "gpu"'),
        ({"level": "job"}, 'key "level" is "job"'),
        ({"family": "lognormal"}, "did you mean 'log-normal'"),
        ({"family": "uniform"}, 'key "family" is "uniform"'),
        ({"spread": -0.1}, 'key "spread" is -0.1'),
        ({"spread": 5}, 'key "spread" is 5: more than 4'),
        ({"spread": "3%"}, 'key "spread" is "3%"'),
        ({"spread": None}, 'key "spread" is null'),
        ({"family": "normal", "spread": 0.3}, "normal factors would often be below 0"),
        ({"factor": 0}, 'key "factor" is 0'),
        ({"correlation": 1}, 'key "correlation" is 1'),
        ({"correlation": -1}, 'key "correlation" is -1'),
        ({"correlation": 0.3, "level": "element"}, "an element draws once"),
        ({"shared": "pod"}, 'key "shared" is "pod"'),
        ({"seed": 3}, '"seed"'),
        ({"parts": [{"weight": 1}]}, 'key "parts" has no effect'),
        ({"factors": [1.0]}, 'key "factors" has no effect'),
        ({"kind": "link"}, 'kind "link" has no events'),
        ({"kind": "link", "level": "step", "shared": "node"}, "each link draws by itself"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError) as refusal:
        read(PLAIN, {**PLAIN, **change})
    assert message in str(refusal.value)
    assert '"variation" index 1' in str(refusal.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "kernel", "level": "step", "family": "gamma"}, 'family "gamma" without "spread"'),
        ({"kind": "kernel", "level": "step", "family": "mixture"}, 'family "mixture" without "parts"'),
        (
            {"kind": "kernel", "level": "step", "family": "empirical", "factors": []},
            'key "factors" is []',
        ),
        (
            {"kind": "kernel", "level": "step", "family": "empirical", "factors": [1, -2]},
            'key "factors" index 1 is -2',
        ),
        (
            {"kind": "kernel", "level": "step", "family": "mixture", "parts": [{"factor": 2}]},
            'key "weight" is missing',
        ),
        (
            {"kind": "kernel", "level": "step", "family": "mixture", "parts": [{"weight": 0}]},
            'key "weight" is 0',
        ),
        ({"level": "step", "family": "gamma", "spread": 0.1}, 'key "kind" is missing'),
        ("slow", 'key "variation" index 0 is "slow"'),
    ],
)
def test_an_incomplete_entry_is_refused(entry: Any, message: str) -> None:
    with pytest.raises(MachineError) as refusal:
        read(entry)
    assert message in str(refusal.value)
