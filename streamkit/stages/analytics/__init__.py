# SPDX-License-Identifier: Apache-2.0
"""Stages that follow objects over time: tracking, counting, speed, zones and rules."""
