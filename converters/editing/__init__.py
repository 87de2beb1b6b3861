"""Edits, figures and drawings of traces: slices, scaling, removal of host operators, statistics, graphs.

Edits work on the records of the files (`converters.records`), so that names, shapes and attributes which the
simulator ignores survive; the structure of the graph comes from the columns.
"""
