"""Messages on their way to the network model, and sends that meet receives."""
