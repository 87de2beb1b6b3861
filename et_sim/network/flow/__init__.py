"""Flow network: concurrent messages share links max-min fairly."""
