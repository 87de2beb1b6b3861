"""Samples of a step: the same run many times, with the times of work multiplied by random factors."""
