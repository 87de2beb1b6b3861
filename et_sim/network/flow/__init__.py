"""Flow network: messages under way at the same time share links max-min fairly."""
