"""Remote memory: how long one request is served, and whose requests wait for each other."""

from et_sim.memory.remote import server_of_ranks, service_ns

__all__ = ["server_of_ranks", "service_ns"]
