"""The critical path: what decided how long a run took, and what would make it shorter."""
