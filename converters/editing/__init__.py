"""Traces changed, measured and drawn: parts of them, many made of few, without the host, figures, graphs.

Edits work on the records of the files (`converters.records`), so that names, shapes and attributes which mean
nothing to the simulator survive; what an edit has to know about the graph, it takes from columns.
"""
