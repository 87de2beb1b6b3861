"""LogGOPS: messages use the processors and NICs at both ends, and no links."""
