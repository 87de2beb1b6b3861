"""The discrete-event engine: when everything in a plan happens."""
