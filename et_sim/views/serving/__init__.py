"""What serving wrote: as text, and as a page."""
