"""Memory: what a remote request costs and who waits for whom; how much local memory is in use."""

from et_sim.memory.footprint import Accesses, Changes, Lifetimes, changes, lifetimes, peaks
from et_sim.memory.remote import server_of_ranks, service_ns

__all__ = [
    "Accesses",
    "Changes",
    "Lifetimes",
    "changes",
    "lifetimes",
    "peaks",
    "server_of_ranks",
    "service_ns",
]
