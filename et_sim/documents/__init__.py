"""Files that people write: their keys as fields of classes, how large they may be, what kind they are."""
