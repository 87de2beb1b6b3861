"""What people see while they wait, on a terminal and elsewhere.

`streams` is the one place that decides between what rich draws and plain text, and that keeps characters
from terminals that these would obey. Not here: the words.
"""

from et_sim.basics.terminal.status import Estimate, Status, StatusLine
from et_sim.basics.terminal.streams import console_of, is_live, visible, visible_streams

__all__ = ["Estimate", "Status", "StatusLine", "console_of", "is_live", "visible", "visible_streams"]
