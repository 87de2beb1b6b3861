"""Timelines for other programs' viewers: Perfetto's own format, and Chrome's trace events.

`contents_of` gathers the contents of both; `perfetto` and `chrome` write them. `Contents` has a sentence for
each thing that is left out.
"""
