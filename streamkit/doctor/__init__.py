"""`run.py doctor`: what this machine can do for a pipeline, and how to mend what it cannot."""
