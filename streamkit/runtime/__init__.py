# SPDX-License-Identifier: Apache-2.0
"""Runs a graph: threads, queues, CUDA streams, processes, metrics. No other package uses threads or queues.

source threads ─► batcher ─► lanes (a chain of stages on a thread each) ─► sinks
"""
