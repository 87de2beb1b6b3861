"""Schedules of LogGOPSim and ATLAHS (GOAL texts) as traces."""
