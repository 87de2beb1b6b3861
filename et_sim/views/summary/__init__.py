"""`et-sim inspect`: where the time goes, by rank, operation, group, link, phase, memory and layer."""
