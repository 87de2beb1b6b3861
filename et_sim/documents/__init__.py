"""Files that people write: their keys as fields of classes, their limits, and their kinds."""
