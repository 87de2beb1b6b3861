"""Network models: how long a message is under way. Every model prepares tables for compiled code."""
