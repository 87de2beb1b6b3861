"""Congestion controls of TCP, a module for each (`et_sim.network.packet.controls`)."""
