"""Compiling with Numba: decorators, tables by reference, the disk cache of machine code."""
