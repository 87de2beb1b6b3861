"""Images of requests: encoded once, in the pass that their prompt begins in, and tokens of that prompt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from training_jobs import decoder, with_experts

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import Policy
from et_sim.serving.images import Images
from et_sim.serving.requests import Request
from et_sim.serving.results import Serving
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.inference.forward import Encoded
from et_sim.workloads.models.model import Attention, FeedForward, VisionTower

TOWER = VisionTower(
    name="the vision tower",
    source="this test",
    hidden=64,
    layers=3,
    vocabulary=0,
    sequence=256,
    attention=Attention(8, 8, 8),
    feed_forward=FeedForward(128, is_gated=False),
    patch_values=588,
    patches=4,
    image_patches=64,
    projections=((256, 64),),
)
IMAGES = Images(32, TOWER)
TEXT = decoder(sequence=4096)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def pass_ns(model: Model, plan: Plan, *batches: Batch) -> int:
    workload = make_inference(model, plan, [batches[0] if len(batches) == 1 else batches])
    return int(et_sim.simulate(workload, machine=f"h100-dgx:{plan.ranks}").makespan_ns)


def served(*requests: Request, model: Model = TEXT, npus: int = 2, **setup: Any) -> Serving:
    usual = {"context_step": 1, "images": IMAGES, "plan": Plan(tensor=2)}
    return serve(requests, model, Setup(**{**usual, **setup}), RunOptions(machine=f"h100-dgx:{npus}"))


def test_a_request_takes_a_pass_of_the_tower_and_then_those_of_a_longer_prompt() -> None:
    plan = Plan(tensor=2)
    outcome = served(Request(0, 0, 100, 2))
    text = [pass_ns(TEXT, plan, Batch.of([one])) for one in (Segment(132), Segment(1, 132))]
    assert outcome.requests()["e2e_ns"].tolist() == [pass_ns(TOWER, plan, IMAGES.batch(1)) + sum(text)]
    without = served(Request(0, 0, 132, 2), images=None)
    assert without.requests()["e2e_ns"].tolist() == [sum(text)]
    assert outcome.summary()["image_tokens"] == 32
    assert "image_tokens" not in without.summary()


@pytest.mark.parametrize("plan", [Plan(tensor=2), Plan(tensor=2, data=2), Plan()])
def test_a_made_pass_with_images_takes_that_of_the_tower_and_that_of_the_longer_prompt(plan: Plan) -> None:
    batch, images = Batch.of([Segment(132), Segment(52)]), IMAGES.batch(2)
    encoded = Encoded(TOWER, IMAGES.plan(plan), images)
    made = make_inference(TEXT, plan, [batch], images=encoded)
    took = int(et_sim.simulate(made, machine=f"h100-dgx:{plan.ranks}").makespan_ns)
    assert took == pass_ns(TOWER, IMAGES.plan(plan), images) + pass_ns(TEXT, plan, batch)


def test_images_are_encoded_once_with_the_first_part_of_a_prompt() -> None:
    policy = Policy(max_batch=50, token_budget=50)
    ends = []
    for setup, prompt in (({}, 100), ({"images": None}, 132)):
        passes = served(Request(0, 0, prompt, 1), policy=policy, **setup).iterations
        assert [one.prefill_tokens for one in passes] == [50, 50, 32]
        ends.append([one.end_ns - one.start_ns for one in passes])
    assert ends[0][0] - ends[1][0] == pass_ns(TOWER, Plan(tensor=2), IMAGES.batch(1))
    assert ends[0][1:] == ends[1][1:]


def test_images_of_new_requests_are_encoded_together() -> None:
    first = served(*[Request(number, 0, 10, 1) for number in range(3)]).iterations[0]
    text = pass_ns(TEXT, Plan(tensor=2), Batch.of([Segment(42)] * 3))
    assert first.end_ns == text + pass_ns(TOWER, Plan(tensor=2), IMAGES.batch(3))


def test_groups_wait_for_the_one_with_most_images() -> None:
    model, plan = with_experts(sequence=4096), Plan(data=2, expert=2)
    requests = [Request(0, 0, 200, 1), Request(1, 0, 50, 1), Request(2, 0, 20, 1)]
    first = served(*requests, model=model, plan=plan).iterations[0]
    text = pass_ns(model, plan, Batch.of([Segment(232)]), Batch.of([Segment(82), Segment(52)]))
    assert first.end_ns == text + pass_ns(TOWER, Plan(), IMAGES.batch(2))


def test_only_replicas_for_prompts_have_a_tower() -> None:
    setup = {"prefill_replicas": 1, "npus": 4, "capacity_bytes": 1 << 22}
    tokens = [
        [
            pool["cache_tokens"]
            for pool in served(Request(0, 0, 8, 3), images=images, **setup).summary()["pools"]
        ]
        for images in (IMAGES, None)
    ]
    assert tokens[0][1] == tokens[1][1] == tokens[1][0]
    token = 4 * 2 * 4 * 8 * 2  # of all layers on a rank
    lost = IMAGES.weight_bytes(Plan(tensor=2)) / token
    assert abs(tokens[1][0] - tokens[0][0] - lost) <= 16
    layer = 4 * 64 * 64 + 2 * 64 * 128
    shared, whole = 3 * layer // 2, 588 * 64 + 256 * 64
    assert 2 * (shared + whole) <= IMAGES.weight_bytes(Plan(tensor=2)) <= 2 * (shared + whole + 7 * 64)


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ({"plan": Plan(pipeline=2)}, "but --pp is 2"),
        ({"images": Images(32, replace(TOWER, attention=Attention(1, 1, 64)))}, "has 1 heads, which 2"),
    ],
)
def test_plans_that_cannot_share_a_tower_are_refused(setup: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        served(Request(0, 0, 10, 1), **setup)


def test_requests_that_share_tokens_have_no_images() -> None:
    with pytest.raises(UsageError, match="request 0 shares tokens with others"):
        served(Request(0, 0, 10, 1, session=0))
