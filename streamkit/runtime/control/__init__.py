"""Live changes: commands, reload, settings, and the state that survives a restart."""
