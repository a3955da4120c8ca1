"""`run.py doctor`: what this machine supports, and how to fix problems."""
