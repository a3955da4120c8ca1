# SPDX-License-Identifier: Apache-2.0
"""Pipelines in a Python loop."""
