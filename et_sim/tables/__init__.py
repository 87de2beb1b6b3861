"""The files of a run, declared once: which tables there are, and what stands in every column.

Whoever writes, reads, queries, checks or documents a table asks the registry. Not here: what fills the tables
(`et_sim.timeline`), and what can be learned from them (`et_sim.views`).
"""
