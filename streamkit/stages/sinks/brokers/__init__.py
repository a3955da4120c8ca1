# SPDX-License-Identifier: Apache-2.0
"""Emitters, a file for each broker or database: its options, its client, and what tests and docs know of it."""
