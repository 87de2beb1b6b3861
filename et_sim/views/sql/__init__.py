"""Questions to a run in SQL."""
