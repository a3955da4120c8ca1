# SPDX-License-Identifier: Apache-2.0
"""A graph as text and as a Mermaid chart, with the copies between host and device."""

from __future__ import annotations

from streamkit.config.plan import DECODE, Graph, Node
from streamkit.core.stage import BatchStage, FrameStage, Sink, Stage, StreamStage
from streamkit.media.uris import mask


def kind_name(kind: type[Stage]) -> str:
    """The kind of a stage in one word: source, batch, stream, frame, sink."""
    for base, name in ((BatchStage, "batch"), (StreamStage, "stream"), (FrameStage, "frame"), (Sink, "sink")):
        if issubclass(kind, base):
            return name
    return "source"


def crossings(graph: Graph, node: Node) -> list[str]:
    """Copies between device and host at `node`, as `streamkit graph` shows them."""
    copies = []
    for name in node.inputs:
        above = graph.nodes.get(name)
        if above is not None and above.on_device and "detections" in above.type.spec.writes:
            copies.append(f"{name} -> {node.id}: the table goes from device to host, one copy a batch")
    crossing = node.type.spec.device_copy
    if crossing and not ("pixels" in node.type.spec.reads_if.values() and "pixels" not in node.reads):
        copies.append(f"{node.id}: {crossing}")
    elif issubclass(node.type, Sink) and "pixels" in node.reads:
        copies.append(f"{node.id}: pixels stay on the device with nvenc, and go to the host with the cpu encoder")
    if node.on_device and "pixels" in node.type.spec.writes:
        copies.append(f"{node.id}: what to draw goes from host to device, one copy a batch")
    return copies


def as_text(graph: Graph, device: str) -> str:
    """The graph for a terminal: sources with masked addresses, each stage with its inputs, and copies."""
    lines = [f"{source.id}: {mask(str(source.options.get('uri', source.type.name)))}" for source in graph.sources]
    width = max((len(node.id) for node in graph.nodes.values()), default=0)
    lines.append(f"{DECODE:<{width}}  frames    {device}")
    for node in graph.nodes.values():
        where = device if node.on_device else "host"
        lines.append(
            f"{node.id:<{width}}  {kind_name(node.type):<8}  {where:<6}  from {', '.join(node.inputs)}"
            + (f"  adds {', '.join(node.type.spec.writes)}" if node.type.spec.writes else "")
        )
    if device != "cpu":
        lines.extend(f"crossing  {text}" for node in graph.nodes.values() for text in crossings(graph, node))
    return "\n".join(lines)


def as_mermaid(graph: Graph, device: str) -> str:
    """The graph as a Mermaid flow chart; dotted arrows are copies between host and device."""
    names = {id_: f"s{i}" for i, id_ in enumerate([DECODE, *graph.nodes])}
    lines = ["flowchart LR", *(f'    in{i}(["{source.id}"]) --> s0' for i, source in enumerate(graph.sources))]
    lines.append(f'    s0["{DECODE}"]')
    for node in graph.nodes.values():
        shape = '[/"{}"/]' if issubclass(node.type, Sink) else '["{}"]'
        lines.append(f"    {names[node.id]}{shape.format(node.id)}")
        for name in node.inputs:
            above = name == DECODE or graph.nodes[name].on_device
            arrow = "-.->" if device != "cpu" and above != node.on_device else "-->"
            lines.append(f"    {names[name]} {arrow} {names[node.id]}")
    return "\n".join(lines)
