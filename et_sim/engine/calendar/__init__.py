"""Simulated time: slots and buckets, and which event is next."""
