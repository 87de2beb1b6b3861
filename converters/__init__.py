"""Conversions between the trace formats of other tools and et-sim's: the packages behind `et-convert`.

A converter turns its input into the records of a trace file. et-sim's own reader checks them before anything
is written, so every file that is written can be read. Everything that is left out is counted in a report.
"""
