# SPDX-License-Identifier: Apache-2.0
"""The pipeline YAML: reading, plugins, validation, plan, graph, checks, and the descriptions generated from stages."""
