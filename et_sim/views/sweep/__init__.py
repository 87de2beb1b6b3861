"""Looking at a sweep: its table, what each axis does, where the bottleneck changes."""
