"""Loads of caches from remote memory, on a machine: bytes by bandwidth, latency, and what ranks share."""

from __future__ import annotations

import pytest
from training_jobs import decoder

from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.caching import Caching
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Plan, read_model
from et_sim.workloads.inference.memory import SequenceCache

MODEL = decoder(sequence=4096)
LATENCY, BANDWIDTH = 2000, 5
HOST = {
    "memory-type": "PER_NPU_MEMORY_EXPANSION",
    "remote-mem-latency": LATENCY,
    "remote-mem-bw": BANDWIDTH,
}
EQUAL = [Request(number, number * 10**10, 1000, 2, hashes=(1, 2)) for number in range(2)]


@pytest.mark.parametrize("plan", [Plan(tensor=2), Plan(pipeline=2)])
def test_a_load_takes_its_bytes_by_the_bandwidth_of_each_rank(plan: Plan) -> None:
    setup = Setup(plan=plan, context_step=1, caching=Caching(0, remote_tokens=ENDLESS))
    found = serve(EQUAL, MODEL, setup, RunOptions(machine="h100-dgx:2", memory=HOST))
    of = found.requests()
    assert of["loaded_tokens"].tolist() == [0, 992]
    each = max(SequenceCache.of(MODEL, plan, stage).bytes(992) for stage in range(plan.pipeline))
    assert (of["scheduled_ns"] - of["arrival_ns"]).tolist() == [0, LATENCY + each // BANDWIDTH]


def test_npus_take_turns_at_one_pool() -> None:
    pool = {**HOST, "memory-type": "MEMORY_POOL"}
    setup = Setup(plan=Plan(tensor=2), caching=Caching(0, remote_tokens=ENDLESS))
    of = serve(EQUAL, MODEL, setup, RunOptions(machine="h100-dgx:2", memory=pool)).requests()
    each = SequenceCache.of(MODEL, Plan(tensor=2)).bytes(992)
    waits = int((of["scheduled_ns"] - of["arrival_ns"])[1])
    assert waits == 2 * (LATENCY + each // BANDWIDTH)


def test_offload_requires_a_remote_memory() -> None:
    setup = Setup(plan=Plan(tensor=2), caching=Caching(0, remote_tokens=5000))
    with pytest.raises(UsageError, match=r"--offload requires a remote memory.*PER_NPU_MEMORY_EXPANSION"):
        serve(EQUAL, MODEL, setup, RunOptions(machine="h100-dgx:2"))


def test_layers_with_windows_share_no_blocks() -> None:
    setup = Setup(plan=Plan(tensor=2), caching=Caching(5000))
    with pytest.raises(UsageError, match=r"keep different numbers of tokens.*--prefix-cache"):
        serve(EQUAL, read_model("gpt-oss-20b"), setup, RunOptions(machine="h100-dgx:2"))
