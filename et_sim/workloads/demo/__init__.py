"""The demonstration: a small training step on a small machine, bundled with the package.

Not here: writing and running it (`et_sim.cli.demo`).
"""

from et_sim.workloads.demo.workload import training_step

__all__ = ["training_step"]
