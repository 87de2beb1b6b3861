"""Networks as graphs: devices and directed links, listed, generated or imported.

Also the protocol that any network file may have.
Not here: the ways that messages take (`et_sim.network.routes`).
"""
