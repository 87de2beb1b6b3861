"""Network models: how long a message is under way. Each model prepares tables for compiled code."""
