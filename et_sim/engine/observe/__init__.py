"""What is noted about a run besides its times: causes, traffic, phases, ties."""
