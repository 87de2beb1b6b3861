"""Recommendation: embedding tables spread over ranks, and networks that every rank has."""
