"""Tables and sentences of `et-sim inspect`: time by rank, operation, group, link, phase, memory and layer."""
