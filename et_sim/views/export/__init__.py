"""Timelines for other programs' viewers: Perfetto's own format, and Chrome's trace events.

`contents_of` gathers what both show; `perfetto` and `chrome` write it. Nothing is left out in silence:
`Contents` carries a sentence for each thing that is.
"""
