"""Network models: the times of messages. Each model prepares tables for compiled code."""
