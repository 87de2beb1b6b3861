"""Networks as graphs: devices and directed links, listed, generated or imported.

Not here: the ways that messages take (`et_sim.network.routes`).
"""
