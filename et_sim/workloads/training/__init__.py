"""A step of training: which parts of a model a rank has, and what they do forward and backward."""
