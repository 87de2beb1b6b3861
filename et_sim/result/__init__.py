"""What `et_sim.simulate` returns."""

from et_sim.result.result import Result

__all__ = ["Result"]
