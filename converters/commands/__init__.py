"""The commands of `et-convert`, one module each; see `converters.cli` for what a module must have.

Modules here are imported for `--help`, so they import what they need when they run.
"""
