"""RoCE: pairs that send at a rate, within a window, and go back to what was not acknowledged."""
