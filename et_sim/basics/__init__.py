"""What every room may use: errors, units, intervals, files, arguments, the terminal, bands."""
