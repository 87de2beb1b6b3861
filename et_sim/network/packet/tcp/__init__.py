"""TCP: streams of bytes between ranks, that are sent again where packets are lost."""
