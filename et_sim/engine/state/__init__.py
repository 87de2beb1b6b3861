"""The state that changes while simulated time passes: tables, their records, and linked lists."""
