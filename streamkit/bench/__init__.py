"""Measures this machine, in processes of their own: `run.py bench cpu` says what it found and which bars it holds.

cpu.py         the bench: both sides in turn, medians, bars
plain_loop.py  the other side: the loop a user would write
probe.py       what a graph costs when its stages do nothing; memory over many frames
compare.py     whether two sides found the same objects
"""
