"""`streamkit doctor`: what this machine supports, and how to fix problems."""
