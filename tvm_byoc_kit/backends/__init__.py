"""The backends that the kit knows by name, one module each."""
