"""Progress and text on terminals and elsewhere.

`streams` decides between output of rich and plain text, and keeps control characters from terminals.
"""

from et_sim.basics.terminal.status import Estimate, Status, StatusLine
from et_sim.basics.terminal.streams import columns_of_terminal, console_of, is_live, visible, visible_streams

__all__ = [
    "Estimate",
    "Status",
    "StatusLine",
    "columns_of_terminal",
    "console_of",
    "is_live",
    "visible",
    "visible_streams",
]
