# SPDX-License-Identifier: Apache-2.0
"""Stages that send records out of the process."""
