"""Models: their dimensions, and the weights that follow from them."""
