"""Contents of the tables: one module for each, which the registry of tables names."""
