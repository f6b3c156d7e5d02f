"""Sessions, catalog, coordinator, timestamps, DML, system parameters, introspection."""
