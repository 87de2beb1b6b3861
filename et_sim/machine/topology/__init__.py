"""Networks as graphs: devices and directed links, listed, generated or imported."""
