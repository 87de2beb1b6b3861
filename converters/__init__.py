"""From and to other tools' trace formats: the rooms behind `et-convert`.

A converter turns what it reads into the records of a trace file and lets et-sim's own reader judge
them before anything is written, so that a file made here can be read here. Nothing is left out
without being counted in a report.
"""
