"""The pipeline YAML: reading, plugins, validation, plan, graph, checks, and the descriptions generated from stages."""
