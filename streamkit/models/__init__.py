# SPDX-License-Identifier: Apache-2.0
"""Model cards, ONNX Runtime sessions, and decoders for each family of networks.

A card (card.py) is checked against its file without touching a device (network.py), runs on one device (session.py),
and its family decodes its outputs (families/).
"""
