"""The test kit for stages, and tests written in YAML."""
