"""The version of et-sim."""

__version__ = "0.1.0"
