"""What `dg` loads: Python modules as they are, and components from their `defs.yaml`."""
