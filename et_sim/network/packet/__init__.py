"""The packet network: every packet of every message, with queues, buffers, pauses and congestion control."""
