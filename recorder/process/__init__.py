"""The part that runs inside a recorded process, beside the user's program; it uses PyTorch and its
internals.
"""
