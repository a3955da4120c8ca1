"""Cameras on several machines: one API and page over the nodes of a Ray cluster.

`run.py cluster cluster.yaml` is the head. It reads the YAML, shares the sources out and serves the API; each node is a
Ray actor that runs the pipeline as `run.py serve` does.

this process                                a machine of the cluster
ClusterRun ── orders, files ──────────────► ClusterNode ── ReloadingPipeline, its sources
           ◄─ report: states, events ──────
forward.py ── HTTP, WebSocket ────────────► the node's own API: live video, images, clips
"""
