"""Views of a sweep: its table, the effect of each axis, and changes of the bottleneck."""
