"""Settings of engines which rows do not name: those of a campaign's scripts.

Campaign B, by model:

SemiAnalysisAI/InferenceX, benchmarks: `70b_fp8_h200_trt_slurm.sh` (a267b4bd), `dsr1_fp8_h200_trt_slurm.sh`
and `gptoss_fp4_h200_trt_slurm.sh` (2e46dba0). Scripts of TensorRT-LLM 1.3 give a pass of DeepSeek 8,192
tokens at least, as serving_engines.json states; earlier ones do not, so that it has one prompt. The first
ones (of rows without a version, 11c2dbe1) share experts among all ranks, and attention is data-parallel for
long prompts of more than 32 requests, which rows do not state.

Campaign A: the generator of ai-dynamo/aiconfigurator gives a pass of TensorRT-LLM a token of each request,
the length of a prompt, and 1,500 more (rule_plugin/trtllm.rule, 17676b35). Its templates for versions before
1.2 give the cache 0.8 of the free memory, and prepare no pass while another one runs
(extra_engine_args.1.0.0rc3.yaml.j2, 71a2b033: disable_overlap_scheduler). It lets SGLang mix prompts and
tokens, with 1,500 tokens beside the length of a prompt (rule_plugin/sglang.rule, 1089dfa8), in servings whose
lengths are thousands of tokens.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.engine_names import SGLANG, TRTLLM
from et_sim.serving.batcher import CHUNKED
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import numbers_of
from et_sim.validation.serving_rows import Load, ServingCase
from et_sim.workloads import Plan

LLAMA_TOKENS, GPT_OSS_TOKENS, LEAST_TOKENS = 16_384, 20_000, 8_192  # of a pass
ROUNDED, LEFT = 64, 64  # tokens of a pass of DeepSeek are a multiple, with some left
SINCE_LEAST = (1, 3)  # version
LONG, MANY = 8192, 32  # tokens of a prompt, and requests above which attention is data-parallel
GENERATED, BESIDE = 1000, 1500  # lengths of mixed servings; tokens of a pass beside those of a prompt
SINCE_OVERLAP, SHARE_BEFORE = (1, 2), 0.8  # version, and the share of the memory before it


class Settings(Struct, frozen=True):
    """Settings that differ from those of the engine; None: those of the engine, or of the row."""

    policy: str | None = None
    token_budget: int | None = None
    memory_share: float | None = None
    wait_passes: int = 0
    wait_share: float = 0.0
    balance_passes: int = 0
    plan: Plan | None = None
    prepares: bool | None = None  # a pass while another one runs


def settings_of(case: ServingCase, engine: Engine) -> Settings:
    """Return the settings of a row: those of its engine, unless its campaign has others."""
    name, _, version = case.engine.partition(":")
    if case.load.lengths == 1:
        return _generated(case.load, name, version, engine)
    if name != TRTLLM:
        return Settings()
    if case.model.startswith("gpt-oss"):
        return Settings(None, GPT_OSS_TOKENS, 0.85)
    if case.model.startswith("deepseek"):
        return _deepseek(case, version)
    if case.model.startswith("llama"):
        waits = case.load.prompt == case.load.output == 1024 and case.plan.tensor < 8
        return Settings(None, LLAMA_TOKENS, None, *((20, 0.9) if waits else ()))
    return Settings()


def _generated(load: Load, name: str, version: str, engine: Engine) -> Settings:
    """Return the settings of a serving of campaign A."""
    if name == TRTLLM:
        budget = load.concurrency + load.prompt + BESIDE
        if version and numbers_of(version) < SINCE_OVERLAP:
            return Settings(None, budget, SHARE_BEFORE, prepares=False)
        return Settings(None, budget)
    if name == SGLANG and load.prompt % GENERATED == 0:
        return Settings(CHUNKED, min(engine.token_budget, load.prompt + BESIDE))
    return Settings()


def _deepseek(case: ServingCase, version: str) -> Settings:
    load, plan = case.load, case.plan
    budget = -(-(load.concurrency + load.prompt + LEFT) // ROUNDED) * ROUNDED
    if version and numbers_of(version) >= SINCE_LEAST:
        budget = max(budget, LEAST_TOKENS)
    if not version and plan.tensor > 1 and plan.data == 1:
        shared = {"expert": plan.tensor}
        if load.prompt >= LONG and load.concurrency > MANY:
            shared |= {"data": plan.tensor, "tensor": 1}
        plan = replace(plan, **shared)
    return Settings(None, budget, 0.75, balance_passes=60 * (plan.data > 1), plan=plan)
