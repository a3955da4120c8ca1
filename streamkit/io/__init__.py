# SPDX-License-Identifier: Apache-2.0
"""Input and output files other than video."""
