# SPDX-License-Identifier: Apache-2.0
"""Metrics, traces, bottleneck, health, alarms, watchdog, and NVML."""
