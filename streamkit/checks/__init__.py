"""What must hold of a pipeline before it runs: each problem at its place in the YAML, with the way out."""
