"""Congestion controls of RoCE, a module for each (`et_sim.network.packet.controls`)."""
