"""Basics for every room: errors, units, intervals, files, arguments, the terminal, bands."""
