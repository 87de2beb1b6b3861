"""Reader of a run's directory: its tables, checks of their content, and the part that a view shows."""
