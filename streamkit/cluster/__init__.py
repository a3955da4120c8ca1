# SPDX-License-Identifier: Apache-2.0
"""Cameras on several machines: one API and page over the nodes of a Ray cluster.

`streamkit cluster cluster.yaml` is the head. It reads the YAML, shares the sources out and serves the API; each node is
a Ray actor that runs the pipeline as `streamkit serve` does.

this process                                a machine of the cluster
ClusterRun ── orders, files ──────────────► ClusterNode ── ReloadingPipeline, its sources
           ◄─ report: states, events ──────
forward.py ── HTTP, WebSocket ────────────► the node's own API: live video, images, clips
"""
