"""Metrics, traces, bottleneck, health, alarms, watchdog, and NVML."""
