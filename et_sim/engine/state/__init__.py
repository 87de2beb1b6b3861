"""What changes while simulated time passes: tables, their records, and lists threaded through them."""
