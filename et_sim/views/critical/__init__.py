"""The critical path of a run, and the parameters that would make the run shorter."""
