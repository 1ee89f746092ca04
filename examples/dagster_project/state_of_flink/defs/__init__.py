"""Each folder has a `defs.yaml`."""
