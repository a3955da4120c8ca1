"""Measures this machine: `run.py bench cpu`, `run.py bench gpu`, `run.py capacity PIPELINE.yaml`.

cpu.py         streamkit beside the loop a user would write, on the CPU: both sides in turn, medians, bars
plain_loop.py  the other side of it
probe.py       what a graph costs when its stages do nothing; memory over many frames
compare.py     whether two sides found the same objects
gpu.py         the parts of a pipeline alone, the whole, and what binds
capacity.py    how many streams fit, and what gives out first
limits.py      a process that measures the parts alone
trial.py       a process that runs a pipeline and measures it in its stride
table.py       the rows that are printed
clips.py, networks.py, copies.py      what is measured: long clips, the network, many paced sources
lock.py, host.py, nvml.py             how busy the interpreter's lock, the cores and the GPU are
child.py       runs the processes
emitting.py, brokers.py   how fast emitters are, with brokers of their own that the tests use as well
"""
