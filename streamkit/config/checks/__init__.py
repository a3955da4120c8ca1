# SPDX-License-Identifier: Apache-2.0
"""Checks of a pipeline before it runs; each problem has its place in the YAML and names the fix."""
