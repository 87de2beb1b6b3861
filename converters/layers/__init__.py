"""Conversions of layer files, the text workloads of ASTRA-sim 1.0.

`gemm` makes layer files from matrix products, `chakra` makes the traces that Chakra's own converter makes of
them, and `summary` reports a conversion.
"""
