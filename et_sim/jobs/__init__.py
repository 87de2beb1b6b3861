"""Several jobs on one machine: a job file becomes one workload, in which each rank is an NPU."""

from et_sim.jobs.merging import read_jobs

__all__ = ["read_jobs"]
