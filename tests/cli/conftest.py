"""Fixtures of the command-line tests."""

from warm_engine import warm_engine

__all__ = ["warm_engine"]
