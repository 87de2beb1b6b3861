"""Training jobs of many ranks: how long making and simulating them takes, and how much memory.

    python benchmarks/training.py

Prints processor time and peak memory of whole processes. The engine is compiled before.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
DENSE = ["--model", "gpt3-175b", "--tp", "8", "--pp", "16", "--micro-batches", "64", "--sequence-parallel"]
EXPERTS = ["--model", "deepseek-v3", "--ep", "64", "--dp", "2048", "--zero", "1"]
CASES = (
    ("GPT-3 175B on 32,768 ranks", [*DENSE, "--dp", "256"], (8, 256, 16)),
    ("GPT-3 175B on 1,048,576 ranks", [*DENSE, "--dp", "8192"], (8, 8192, 16)),
    ("DeepSeek-V3, 256 experts, on 2,048 ranks", EXPERTS, (64, 32)),
)


def main() -> None:
    """Make and run every job."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, options, npus in CASES:
            write_machine(npus)
            made = cost(["make", "llm", *options, "-o", "job"])
            run = ["run", "job.workload.json", "--system", "system.json", "--network", "network.json"]
            cost(run)
            ran = cost(run)
            print(
                f"{name}: made in {made[0]:.1f} s, {made[1]} MiB; simulated in {ran[0]:.1f} s, {ran[1]} MiB"
            )


def write_machine(npus: tuple[int, ...]) -> None:
    """Return a network with a fast dimension inside a node, and slower ones outside."""
    algorithms = {f"{name}-implementation": ["direct", *["ring"] * (len(npus) - 1)] for name in NAMES}
    Path("system.json").write_text(json.dumps({"profile": "corrected", **algorithms}))
    outside = len(npus) - 1
    network = {
        "topology": ["Switch"] * len(npus),
        "npus_count": list(npus),
        "bandwidth": [450, *[50] * outside],
        "latency": [500, *[1000] * outside],
    }
    Path("network.json").write_text(json.dumps(network))


def cost(arguments: list[str]) -> tuple[float, int]:
    """Return processor seconds and peak memory in MiB of one command."""
    program = "import sys; from et_sim.cli import main; sys.exit(main(sys.argv[1:]))"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", MEASURED, sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, int(done.stdout) // 1024


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

if __name__ == "__main__":
    main()
