"""TCP: streams of bytes between ranks, with retransmission of lost packets."""
