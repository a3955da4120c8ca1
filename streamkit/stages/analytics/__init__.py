"""Stages that follow objects over time: tracking, counting, speed, zones and rules."""
