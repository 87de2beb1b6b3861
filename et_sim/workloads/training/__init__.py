"""A step of training: the parts of a model on a rank, and their kernels forward and backward."""
