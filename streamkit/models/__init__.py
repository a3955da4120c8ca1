"""Model cards, ONNX Runtime sessions, and how each family of networks is read.

A card (card.py) is checked against its file with no device touched (network.py), run on one device (session.py), and
its output is read by its family (families/).
"""
