"""Recordings of real jobs, in the formats of other tools: one module per format, recognised by content.

A module of this package that declares `FORMAT` is a format; `converters.recordings.door` finds and calls it,
and `converters.recordings.format` has the class.
"""
