"""RoCE: pairs that send at a rate within a window, and go back to the first unacknowledged byte."""
