"""SVG pictures of a run, and their common parts: visible nodes, tracks, flows and colours."""
