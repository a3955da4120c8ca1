# SPDX-License-Identifier: Apache-2.0
"""Measures this machine: `streamkit bench cpu`, `streamkit bench gpu`, `streamkit capacity PIPELINE.yaml`.

cpu.py         streamkit against a plain loop on the CPU: alternating runs, medians, thresholds
plain_loop.py  the plain loop
graph_cost.py  the cost of a graph whose stages do nothing; memory over many frames
gpu.py         the parts of a pipeline alone, whole pipelines, and the bottleneck
capacity.py    how many streams a device can run, and what limits it
limits.py      a process that measures the parts alone
trial.py       a process that runs a pipeline and measures it in steady state
table.py       the rows of the output
inputs.py      long clips, the network
copies.py      many paced sources
load.py        counters, cores, memory and the GIL of a run (of the GPU: runtime/observe/nvml.py)
child.py       runs the processes
"""
