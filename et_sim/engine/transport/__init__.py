"""Messages on their way to the network model, and the matching of sends and receives."""
