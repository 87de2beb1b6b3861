"""GOAL, the schedules of LogGOPSim and ATLAHS, as traces."""
