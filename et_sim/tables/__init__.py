"""The files of a run, declared once: the tables, and the meaning of every column.

Code that writes, reads, queries, checks or documents a table uses the registry.
"""
