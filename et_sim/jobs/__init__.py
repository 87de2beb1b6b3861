"""Several jobs on one machine: a job file becomes one workload, in which each rank is an NPU.

Not here: what becomes of the jobs in a run (`et_sim.run.simulation`, `et_sim.run.isolated`).
"""

from et_sim.jobs.merging import read_jobs

__all__ = ["read_jobs"]
