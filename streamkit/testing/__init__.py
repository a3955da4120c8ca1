# SPDX-License-Identifier: Apache-2.0
"""The test kit for stages, and tests written in YAML."""
