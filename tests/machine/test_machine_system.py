"""The system file: every key is checked, defaults are recorded, and the reference's traps are named."""

from __future__ import annotations

from typing import Any

import pytest
from machines import RING_4

from et_sim.basics.errors import MachineError, UsageError
from et_sim.documents.keys_without_effect import UNUSED_KEYS
from et_sim.machine import AllReducePlan, Machine, SharedBus, StreamPolicy, read_machine
from et_sim.machine.system_file import SYSTEM_KEYS

GRID = {"topology": ["Ring", "Switch"], "npus_count": [4, 2], "bandwidth": [50, 25], "latency": [500, 1000]}


def read(network: dict[str, Any] = RING_4, /, **keys: Any) -> Machine:
    """Return a machine from system keys written with underscores."""
    return read_machine(system=spelled(keys), network=network)


def spelled(keys: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in keys.items()}


def refusal(network: dict[str, Any] = RING_4, /, **keys: Any) -> str:
    with pytest.raises(MachineError) as caught:
        read(network, **keys)
    return str(caught.value)


def warnings(machine: Machine) -> dict[str, str]:
    return {notice.key: notice.text for notice in machine.warnings}


def defaults(machine: Machine) -> dict[str, str]:
    return {notice.key: notice.text for notice in machine.defaults}


def test_every_key_lands_in_its_field() -> None:
    machine = read(
        scheduling_policy="FIFO",
        endpoint_delay=7,
        active_chunks_per_dimension=3,
        preferred_dataset_splits=8,
        all_reduce_implementation=["direct4"],
        all_gather_implementation=["oneRing"],
        reduce_scatter_implementation=["halvingDoubling"],
        all_to_all_implementation=["direct"],
        collective_optimization="baseline",
        local_mem_bw=1600,
        peak_perf=900.5,
        roofline_enabled=1,
        replay_only=True,
        track_local_mem=2,
        local_reduction_delay=5,
        model_shared_bus=1,
        L=1,
        o=2,
        g=3,
        G=0.5,
        num_queues_per_dim=2,
        rendezvous_protocol=True,
        all_reduce_implementation_custom=["custom/algo"],
        per_node_custom_implementation="nodes.yml",
    )
    system = machine.system
    assert system.policy is StreamPolicy.FIFO
    assert system.all_reduce_plan is AllReducePlan.BASELINE
    assert (system.endpoint_delay_ns, system.active_chunks, system.splits, system.queues_per_dim) == (
        7,
        3,
        8,
        2,
    )
    assert system.implementations.all_reduce == ("direct4",)
    assert system.implementations.all_gather == ("oneRing",)
    assert system.implementations.reduce_scatter == ("halvingDoubling",)
    assert system.implementations.all_to_all == ("direct",)
    assert (system.local_mem_bw, system.peak_perf) == (1600.0, 900.5)
    assert (system.roofline, system.replay_only, system.track_local_mem, system.rendezvous) == (True,) * 4
    assert system.local_reduction_delay == 5
    assert system.shared_bus == SharedBus(latency=1, overhead=2, gap=3, gap_per_byte=0.5)
    assert system.custom_implementations == {"all_reduce": "custom/algo"}
    assert system.per_node_implementation == "nodes.yml"
    assert not machine.warnings


def test_every_default_taken_is_recorded_with_its_value() -> None:
    taken = defaults(read())
    assert taken["scheduling-policy"].startswith('not given; "LIFO" is taken (the reference reads uninit')
    assert taken["collective-optimization"].startswith('not given; "localBWAware" is taken')
    assert taken["preferred-dataset-splits"].startswith(
        "not given; 1 is taken (the reference divides by zero"
    )
    assert taken["endpoint-delay"] == "not given; 10 is taken"
    assert "L" not in taken, "the bus is off, so its latency was not taken from anywhere"
    assert "L" in defaults(read(model_shared_bus=1))


def test_a_given_key_is_no_default() -> None:
    assert "endpoint-delay" not in defaults(read(endpoint_delay=10))


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    assert (
        refusal(endpoint_dealy=10)
        == "<system>: key \"endpoint-dealy\" is not known (did you mean 'endpoint-delay'?)"
    )
    assert "did you mean 'peak-perf'?" in refusal(PEAK_PERF=1)
    assert "known keys: profile" in refusal(zzz=1)


@pytest.mark.parametrize("name", sorted(UNUSED_KEYS.keys() - {key.name for key in SYSTEM_KEYS}))
def test_keys_of_other_versions_are_accepted_with_a_warning(name: str) -> None:
    machine = read_machine(system={"endpoint-delay": 10, name: 1}, network=RING_4)
    assert [notice.text for notice in machine.warnings if notice.key == name] == [
        f"no effect: it {UNUSED_KEYS[name]}"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("inter-dimension-scheduling", "ascending"),
        ("inter-dimension-scheduling", "themis"),
        ("intra-dimension-scheduling", "FIFO"),
        ("boost-mode", 0),
        ("boost-mode", True),
        ("seprate-log", 1),
        ("gap-denominator", 16),
        ("direct-collective-window", 4),
        ("comm-scale", 3),
        ("compute-scale", 0.5),
        ("logging-configuration", "empty"),
        ("logging-folder", "log"),
        ("trace-enabled", 1),
    ],
)
def test_keys_without_effect_are_accepted_with_one_warning(key: str, value: Any) -> None:
    machine = read_machine(system={key: value}, network=RING_4)
    assert [(notice.place, notice.key) for notice in machine.warnings] == [("<system>", key)]
    assert machine.system == read().system


def test_a_switched_off_trace_key_is_not_worth_a_warning() -> None:
    assert not read(trace_enabled=0).warnings


@pytest.mark.parametrize("key", ["roofline-enabled", "replay-only", "track-local-mem", "trace-enabled"])
def test_false_is_off_with_a_warning_that_the_reference_would_switch_it_on(key: str) -> None:
    machine = read_machine(system={key: False}, network=RING_4)
    assert "the reference would switch it on" in warnings(machine)[key]
    assert machine.system == read().system


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("roofline-enabled", "roofline"),
        ("replay-only", "replay_only"),
        ("track-local-mem", "track_local_mem"),
    ],
)
@pytest.mark.parametrize(
    ("value", "on"), [(0, False), (0.0, False), (1, True), (2, True), (-0.5, True), (True, True)]
)
def test_a_switch_is_on_for_every_number_but_zero(key: str, field: str, value: Any, on: bool) -> None:
    machine = read_machine(system={key: value, "peak-perf": 1, "local-mem-bw": 1}, network=RING_4)
    assert getattr(machine.system, field) is on
    assert not machine.warnings


@pytest.mark.parametrize("key", ["model-shared-bus", "rendezvous-protocol"])
def test_yes_no_keys_take_false_for_no_without_a_warning(key: str) -> None:
    assert read_machine(system={key: False}, network=RING_4).warnings == ()


@pytest.mark.parametrize(
    ("key", "field"),
    [("preferred-dataset-splits", "splits"), ("active-chunks-per-dimension", "active_chunks")],
)
def test_a_fraction_is_cut_with_a_warning_and_a_whole_float_is_taken(key: str, field: str) -> None:
    machine = read_machine(system={key: 1.9}, network=RING_4)
    assert getattr(machine.system, field) == 1
    assert warnings(machine) == {key: "1.9 is cut to 1, as the reference does"}
    machine = read_machine(system={key: 4.0}, network=RING_4)
    assert getattr(machine.system, field) == 4
    assert not machine.warnings


def test_zero_chunks_zero_active_chunks_and_zero_queues_are_refused_with_the_reason() -> None:
    assert "is 0: a collective is cut into at least one chunk" in refusal(preferred_dataset_splits=0)
    assert "is 0: without chunks, no collective starts (allowed: an integer >= 1)" in refusal(
        active_chunks_per_dimension=0
    )
    assert "is 0.5: without chunks, no collective starts" in refusal(active_chunks_per_dimension=0.5)
    assert "is 0: without queues, no collective starts" in refusal(num_queues_per_dim=0)


def test_more_queues_than_their_numbers_have_bits_are_refused() -> None:
    assert read(num_queues_per_dim=(1 << 15) - 1).system.queues_per_dim == (1 << 15) - 1
    assert "is 32768" in refusal(num_queues_per_dim=1 << 15)


@pytest.mark.parametrize(
    ("delay", "scale", "expected"), [(10, 1.0, 10), (10, 2.5, 25), (10.9, 2.5, 25), (7, 0.1, 0)]
)
def test_the_endpoint_delay_is_cut_before_and_after_scaling(
    delay: float, scale: float, expected: int
) -> None:
    assert read(endpoint_delay=delay, injection_scale=scale).system.endpoint_delay_ns == expected


def test_the_built_in_endpoint_delay_is_not_scaled_with_a_warning() -> None:
    machine = read(injection_scale=3)
    assert machine.system.endpoint_delay_ns == 10
    assert "no effect without endpoint-delay" in warnings(machine)["injection-scale"]


def test_an_injection_scale_of_zero_is_refused() -> None:
    assert "allowed: a number > 0" in refusal(injection_scale=0)


def test_unknown_choices_are_refused_with_the_nearest_one() -> None:
    assert "did you mean 'FIFO'? allowed: LIFO, FIFO or EXPLICIT" in refusal(scheduling_policy="fifo")
    assert "did you mean 'localBWAware'?" in refusal(collective_optimization="localBWaware")


@pytest.mark.parametrize(
    ("given", "normal"),
    [("direct", "direct"), ("direct-1", "direct"), ("oneDirect-1", "oneDirect"), ("direct04", "direct4")]
    + [(name, name) for name in ("ring", "oneRing", "direct12", "oneDirect3", "halvingDoubling")]
    + [(name, name) for name in ("oneHalvingDoubling", "doubleBinaryTree", "oneDirect")],
)
def test_algorithm_names_have_one_spelling(given: str, normal: str) -> None:
    assert read(all_reduce_implementation=[given]).system.implementations.all_reduce == (normal,)


@pytest.mark.parametrize(
    "name", ["direct0", "direct-2", "oneDirect0", "direct1.5", "Ring", "hypercube", "", 3, None]
)
def test_an_unknown_algorithm_is_refused_with_key_index_and_names(name: Any) -> None:
    text = refusal(GRID, all_gather_implementation=["ring", name])
    assert 'key "all-gather-implementation" index 1 is ' in text
    assert "allowed: ring, direct, direct<W>," in text
    assert "W an integer >= 1" in text


def test_a_misspelt_algorithm_is_answered_with_the_nearest() -> None:
    assert "did you mean 'ring'?" in refusal(all_reduce_implementation=["Ring"])
    assert "did you mean 'halvingDoubling'?" in refusal(all_reduce_implementation=["halfingDoubling"])


def test_an_algorithm_without_its_list_is_refused_with_the_right_form() -> None:
    assert 'write it as a list: "all-reduce-implementation": ["ring"]' in refusal(
        all_reduce_implementation="ring"
    )
    assert "the list is empty" in refusal(all_reduce_implementation=[])


def test_more_algorithms_than_dimensions_are_refused_with_both_counts() -> None:
    text = refusal(all_reduce_implementation=["ring", "ring"])
    assert 'key "all-reduce-implementation" has 2 entries, the network has 1 dimension' in text


def test_fewer_algorithms_than_dimensions_are_warned_about() -> None:
    machine = read(GRID, all_to_all_implementation=["ring"])
    text = warnings(machine)["all-to-all-implementation"]
    assert text == "1 of 2 dimensions have an algorithm: the others are not used by all-to-all"


@pytest.mark.parametrize("name", ["oneRing", "oneDirect4", "oneHalvingDoubling"])
def test_one_algorithm_over_all_npus_needs_no_further_entries(name: str) -> None:
    assert not read(GRID, all_reduce_implementation=[name]).warnings


def test_entries_behind_an_algorithm_over_all_npus_are_warned_about() -> None:
    machine = read(GRID, all_reduce_implementation=["oneRing", "ring"])
    assert "oneRing at index 0 spans all NPUs" in warnings(machine)["all-reduce-implementation"]


def test_a_custom_collective_needs_exactly_one_prefix() -> None:
    assert "allowed: a list with exactly one trace prefix" in refusal(
        all_reduce_implementation_custom=["a", "b"]
    )
    assert "allowed: a list with exactly one trace prefix" in refusal(all_reduce_implementation_custom="a")


def test_a_roofline_without_figures_is_warned_about() -> None:
    machine = read(roofline_enabled=1, local_mem_bw=100)
    assert "computation takes 0 ns" in warnings(machine)["peak-perf"]
    assert "local-mem-bw" not in warnings(machine)


LEAST = {"scheduling-policy": "LIFO", "preferred-dataset-splits": 4}


def test_a_given_profile_overrides_that_of_the_file() -> None:
    switches = {"corrections": {"eager-sends": False}}
    for named, profile in ((LEAST | {"profile": "corrected"}, "reference"), (LEAST, "corrected")):
        behaviour = read_machine(system=named, network=RING_4, profile=profile).system.behaviour
        assert (behaviour.profile, behaviour.switched) == (profile, frozenset())
    switched = read_machine(system=LEAST | switches, network=RING_4, profile="corrected").system.behaviour
    assert switched.switched == {"eager-sends"}


def test_a_profile_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"profile 'corected' is not known \(did you mean 'corrected'"):
        read_machine(system=LEAST, network=RING_4, profile="corected")
