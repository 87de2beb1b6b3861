"""Predictions held against measurements: kernels, collectives and iterations of tables, row by row.

Not here: fitting anything to them.
"""
