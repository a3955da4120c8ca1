"""Synthetic street scenes: `scene` plans the motion, `sprites` and `paint` draw it, `score` judges a detector on it."""
