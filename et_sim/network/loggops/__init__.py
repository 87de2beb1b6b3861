"""LogGOPS: messages take the time of processors and NICs at both ends, and meet nowhere else."""
