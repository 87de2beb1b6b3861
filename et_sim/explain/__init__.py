"""What a word means: a key of an input file, a correction, a table, a column, a part of time, an option.

Everything is read from the registries that the readers, the tables and the command line go by.
"""

from et_sim.explain.meanings import Meaning, Option, all_meanings, find

__all__ = ["Meaning", "Option", "all_meanings", "find"]
