"""Comparison of predictions with measurements: kernels, collectives and iterations of tables, row by row."""
