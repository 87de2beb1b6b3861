"""What happened: Arrow tables, statistics and the summary of a run, and the files that hold them."""

from et_sim.timeline.keep import Keep
from et_sim.timeline.result import Result
from et_sim.timeline.spool import Messages, Moments, Phases
from et_sim.timeline.writer import check_target, write_run

__all__ = ["Keep", "Messages", "Moments", "Phases", "Result", "check_target", "write_run"]
