"""What fills each table: one module for each, which the registry of tables names."""
