"""Images in requests: a vision tower encodes them before their prompt, and their tokens join it.

All images of a request are encoded in the pass that its prompt begins in, before the layers of the language
model, by the ranks of its group. They are encoded once: a sequence that loses its cache keeps its images.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.serving.engines.description import Engine
from et_sim.serving.replicas import CachePool, Times
from et_sim.serving.requests import NONE, Request
from et_sim.workloads.inference.batch import Batch, BatchLoad
from et_sim.workloads.inference.memory import weight_bytes_of_stage
from et_sim.workloads.models.model import VisionTower
from et_sim.workloads.training.plan import Plan


class Images(Struct, frozen=True):
    """The images of every request, by the tokens that they add to its prompt, and the tower of the model."""

    tokens: int
    tower: VisionTower

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(f"--image-tokens is {self.tokens}", remedy="give 1 or more, or leave it out")
        each = self.tower.image_patches // self.tower.patches
        if each and self.tokens % each:
            near = max(round(self.tokens / each), 1) * each
            raise UsageError(
                f"--image-tokens is {self.tokens}, but an image of {self.tower.name} has {each} tokens",
                remedy=f"give a multiple of {each}, such as {near}",
            )

    def batch(self, requests: int) -> Batch:
        """Return the patches of the images of some requests."""
        tower = self.tower
        each = tower.image_patches or self.tokens * tower.patches
        images = requests * self.tokens * tower.patches // each
        seen = each + tower.own_tokens
        load = BatchLoad(images, images * seen, images * seen, images * seen**2)
        return Batch(load, BatchLoad(), 0)

    def plan(self, plan: Plan) -> Plan:
        """Return the plan of the tower on the ranks of a group, which share it; its weights are values."""
        return Plan(
            tensor=plan.tensor,
            value_bytes=plan.value_bytes,
            value_type=plan.value_type,
            computes=plan.computes,
            tflops=plan.tflops,
            memory_gbps=plan.memory_gbps,
        )

    def check(self, plan: Plan) -> None:
        """Refuse ranks that cannot share the tower."""
        tower = self.tower
        for quantity, total in (("heads", tower.attention.heads), ("inner values", tower.feed_forward.width)):
            if total % plan.tensor:
                raise UsageError(
                    f"{tower.name} has {total} {quantity}, which {plan.tensor} tensor-parallel ranks cannot"
                    " share",
                    remedy=f"choose --tp that divides {total}, or leave out --image-tokens",
                )
        if plan.pipeline > 1:
            raise UsageError(
                f"images are encoded by all ranks of a group, but --pp is {plan.pipeline}",
                remedy="leave out --pp, or --image-tokens",
            )

    def weight_bytes(self, plan: Plan) -> int:
        """Return the bytes of the tower's weights on a rank."""
        ends = self.tower.joining_weights * plan.value_bytes
        return ends + weight_bytes_of_stage(self.tower, self.plan(plan), 0)

    def prompts(self, requests: Sequence[Request]) -> tuple[Request, ...]:
        """Return the requests with the tokens of their images in their prompts."""
        for request in requests:
            if request.session != NONE or request.hashes:
                raise UsageError(
                    f"request {request.number} shares tokens with others, and --image-tokens adds other ones",
                    remedy="leave it out, or give requests without sessions and hashes",
                )
        return tuple(replace(request, prompt=request.prompt + self.tokens) for request in requests)


def images_of(tokens: int | None, model: str) -> Images | None:
    """Return the images of requests for a model's file; None without tokens."""
    if tokens is None:
        return None
    from et_sim.workloads.models.vision import read_tower

    return Images(tokens, read_tower(model))


class Encoding(Struct, frozen=True):
    """Images, and the times of their tower's passes."""

    images: Images
    times: Times

    def ns(self, pool: CachePool, requests: Sequence[int], engine: Engine) -> int:
        """Return the time in which each group of a replica encodes the images of its new requests."""
        batches = [self.images.batch(count) for count in set(requests) if count]
        if not batches:
            return 0
        tower, of = self.images.tower, replace(pool, plan=self.images.plan(pool.plan))
        took = [engine.pass_ns(self.times.pass_ns(of, batch), batch, tower.layers) for batch in batches]
        return max(took)
