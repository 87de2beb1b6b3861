"""What `et_sim.simulate` returns."""

from et_sim.run.result.result import Result

__all__ = ["Result"]
