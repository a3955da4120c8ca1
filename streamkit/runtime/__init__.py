"""Runs a graph: threads, queues, CUDA streams and what is counted. The only place that names any of them.

source threads ─► batcher ─► lanes (a chain of stages on a thread each) ─► sinks
"""
