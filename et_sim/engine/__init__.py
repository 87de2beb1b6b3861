"""The discrete-event engine, which computes the times of everything in a plan."""
