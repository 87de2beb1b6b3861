"""The directory of a run, read: tables, what must be in them, and which part of them a view is about."""
