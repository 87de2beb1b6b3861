"""Periods of collectives, in which everything is as before but later, are passed all at once."""
