"""Mistakes in the description of a sweep are one sentence, with the line and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import RING_4
from small_sweeps import SYSTEM, TEXT, WORKLOAD, spec, write

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.documents.keys import keys_of
from et_sim.recipes.recipe import make
from et_sim.sweeps.fields import ROOTS
from et_sim.sweeps.space import open_space
from et_sim.sweeps.spec import BaseSpec, read_spec
from et_sim.sweeps.state import plan_sweep

WRONG = [
    ("axes:", "axis:", "line 5: key \"axis\" is not known (did you mean 'axes'?)"),
    ("bandwidth[0]", "bandwith[0]", "network has no key 'bandwith' (did you mean 'bandwidth'?)"),
    ("bandwidth[0]", "bandwidth[1]", "network.bandwidth has 1 entry (there are [0] to [0])"),
    ("bandwidth[0]", "bandwidth[0][0]", "network.bandwidth[0] is a number, no list"),
    ("bandwidth[0]", "bandwidth[0].x", "network.bandwidth[0] is a number, which has no keys"),
    ("bandwidth[0]", "bandwidth.0", "which has no keys (name an entry, such as network.bandwidth[0])"),
    ("bandwidth[0]", "bandwidth[", "names no field: '[' cannot be read"),
    ("system.pref", "sytem.pref", "(did you mean 'system'?)"),
    ("-splits, values: [1, 2, 4]", "-split, values: [1]", "(did you mean 'preferred-dataset-splits'?)"),
    ("values: [1, 2, 4]", "values: []", "line 7: axis 'splits' has no values"),
    ("values: [1, 2, 4]", "values: 4", 'line 7: key "values" is 4 (allowed: a list)'),
    ("values: [1, 2, 4]", "range: {from: 1}", 'line 7: key "to" is missing (allowed: a number)'),
    ("values: [1, 2, 4]", "range: {from: 4, to: 1, count: 2}", "begin with the smaller number"),
    ("values: [1, 2, 4]", "range: {from: 0, to: 1, count: 2, scale: logarithmic}", "begin above 0"),
    ("values: [1, 2, 4]", "range: {from: 1, to: 4, count: 2, scale: log}", "did you mean 'logarithmic'"),
    ("values: [1, 2, 4]", "range: {from: 1, to: 4}", "has no count"),
    ("values: [1, 2, 4]", "range: {from: 1, to: .inf, count: 2}", "has no end"),
    ("values: [1, 2, 4]", "", "needs either values or a range"),
    (
        "splits: {field: system.preferred-dataset-splits",
        "again: {field: 'network.bandwidth[0]'",
        "two axes change",
    ),
    ("splits: {field: system.preferred-dataset-splits", "all: {field: network.bandwidth", "two axes change"),
    ("splits: {", "status: {", "no axis can be called 'status'"),
    ("splits: {", "Status: {", "no axis can be called 'Status'"),
    ("splits: {", "'': {", "an axis has no name"),
    ("splits: {", "Bandwidth: {", "two axes have one name but for capital letters"),
    (
        "splits: {field: system.preferred-dataset-splits, values: [1, 2, 4]",
        "all: {field: system, range: {from: 1, to: 2, count: 2}",
        "has a range, and system is no number",
    ),
    ("  network: network.yml\n", "", "line 1: the network is missing"),
    ("network.yml", "nowhere.yml", "the network file does not exist"),
    ("network.yml", "system.json", "this looks like a system file"),
    ("all_reduce", "all_redcue", "did you mean 'all_reduce'"),
    ("64KiB}", "64KiB, ran: 4}", "did you mean 'ranks'"),
    ("{make: all_reduce, ranks: 4, bytes: 64KiB}", "missing", "line 2:"),
    (
        "network: network.yml",
        "network: network.yml\n  profile: new",
        "line 5: profile 'new' is not known (known: ",
    ),
    ("network: network.yml", "network: network.yml\n  model: analytic", "line 5: network model 'analytic'"),
    ("network: network.yml", "machine: h100-dg:8", "machine 'h100-dg' is not known"),
    ("system.preferred-dataset-splits", "memory.latency", "changes the memory, and there is none"),
    ("system.preferred-dataset-splits", "model.name", "model has none"),
    ("system.preferred-dataset-splits", "workload.plan.tp", "has no key 'plan'"),
    ("base:", "zip: [[bandwidth, split]]\nbase:", "did you mean 'splits'"),
    ("base:", "zip: [[bandwidth]]\nbase:", "fewer than two axes"),
    ("base:", "sample: {points: 4, method: sobol}\nbase:", "allowed: random or latin-hypercube"),
    ("base:", "constraints: [splits > bandwith]\nbase:", "did you mean 'bandwidth'"),
    ("base:", "constraints: [splits > 99]\nbase:", "no combination of the axes meets the constraints"),
    ("base:", "base: {}\nbase:", '"base" is given more than once'),
    ("base:", "- base:", "not valid YAML"),
]


@pytest.mark.parametrize(("right", "wrong", "sentence"), WRONG)
def test_a_mistake_is_one_sentence(right: str, wrong: str, sentence: str, tmp_path: Path) -> None:
    assert right in TEXT
    path = write(tmp_path, TEXT.replace(right, wrong, 1))
    with pytest.raises(EtSimError) as refusal:
        plan_sweep(path)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("content", ["", "[]", "base", "base:\naxes:\n", "\x00", "a: &a [*a]"])
def test_content_that_is_no_sweep_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yml").write_text(content, encoding="utf-8")
    for path in (tmp_path / "sweep.yml", tmp_path, tmp_path / "none.yml"):
        with pytest.raises(EtSimError):
            plan_sweep(path)


def test_every_root_of_an_address_is_a_key_of_base() -> None:
    alike = {
        "samples",
        "seed",
        "goodput",
        "ties-alike",
    }  # at all points, which are then compared on equal terms
    assert {key.name for key in keys_of(BaseSpec)} == set(ROOTS) | alike


@pytest.mark.deep
def test_a_sweep_of_many_points_needs_a_yes() -> None:
    axes = {
        "bandwidth": {"field": "network.bandwidth[0]", "range": {"from": 1.0, "to": 2.0, "count": 10_001}}
    }
    with pytest.raises(EtSimError, match=r"10,001 points \(more than 10,000 are evaluated only with --yes\)"):
        plan_sweep(spec(axes=axes))
    assert len(plan_sweep(spec(axes=axes), may_be_large=True).points) == 10_001


def test_a_possible_key_that_is_not_in_the_file_can_be_varied() -> None:
    axes = {"system.corrections.eager-sends": [True, False], "system.endpoint-delay": [0, 10]}
    space = open_space(read_spec(spec(axes=axes)))
    content = space.inputs((True, 10)).parts["system"].content
    assert content["corrections"] == {"eager-sends": True}
    assert content["endpoint-delay"] == 10
    assert "corrections" not in space.base["system"].content  # type: ignore[union-attr]


def test_values_of_one_point_change_no_other() -> None:
    plan = plan_sweep(spec())
    first = plan.space.digest(plan.space.inputs(plan.points[0].values), plan.space.files())
    for point in plan.points[1:]:
        plan.space.inputs(point.values)
    assert plan.space.digest(plan.space.inputs(plan.points[0].values), plan.space.files()) == first


def test_whole_files_can_be_an_axis_and_their_fields_another(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        TEXT.replace(
            "splits: {field: system.preferred-dataset-splits, values: [1, 2, 4]}",
            "network: [network.yml, wide.yml]",
        ),
    )
    (tmp_path / "wide.yml").write_text((tmp_path / "network.yml").read_text().replace("[4]", "[ 4 ]"))
    plan = plan_sweep(path)
    assert [point.values for point in plan.points][:2] == [(25, "network.yml"), (25, "wide.yml")]
    assert plan.points[0].digest == plan.points[1].digest  # equal contents


def test_a_digest_follows_contents_not_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = (plan_sweep(write(tmp_path / name)) for name in "ab")
    assert [point.digest for point in here.points] == [point.digest for point in there.points]
    changed = dict(RING_4, latency=[501.0])
    base = {"workload": WORKLOAD, "system": SYSTEM, "network": changed}
    assert plan_sweep(spec(base=base)).points[0].digest != here.points[0].digest


def test_a_plan_that_contradicts_itself_is_refused_by_the_names_of_its_keys(tmp_path: Path) -> None:
    recipe = {"make": "llm", "model": "gpt2", "plan": {"sequence-parallel": True}}
    with pytest.raises(UsageError, match="sequence-parallel requires tp, 2 or more"):
        make(recipe, tmp_path)
