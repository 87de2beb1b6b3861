"""Flight-recorder dumps: reading them without running code, and finding who came to which operation."""
