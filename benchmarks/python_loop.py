"""Speed of a Python loop over a pipeline's frames against the same pipeline with the sink `jsonl`.

    python benchmarks/python_loop.py CLIP [--model demo] [--device auto] [--sources 1] [--pairs 3] [--torch]

Each run is a process of its own; the kinds alternate. All read the detections of every frame:

- `jsonl`: no loop, the sink writes them.
- `loop`: a loop reads them; there is no sink.
- `torch`: like `loop`, and every frame becomes a PyTorch tensor by `torch.from_dlpack(frame.rgb())`.

The rate counts from a fifth of all frames to nine tenths, so that start and end are not part of it. The clip is
repeated to `--frames` frames without encoding. The ratios are those of each pair; bytes that reach the host are those
that streamkit copies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import streamkit
from streamkit.bench.child import environment
from streamkit.bench.inputs import lengthen, network, scratch_folder
from streamkit.ops import traffic
from streamkit.runtime.execution.device import choose

_FROM, _TO = 0.2, 0.9
_POLL_S = 0.002


def measure(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Run the pipeline once; return its rate, the copied bytes and the counters."""
    stages: dict[str, Any] = {"detect": {"model": spec["model"], **spec["detect"]}}
    if kind == "jsonl":
        stages["jsonl"] = {"path": spec["out"] + "/{source}.jsonl"}
    sources = {f"s{number}": spec["clip"] for number in range(spec["sources"])}
    plan = {"sources": sources, "stages": stages, "batch": {"size": spec["batch"]} if spec["batch"] else {}}
    low, high = (int(share * spec["frames"] * spec["sources"]) for share in (_FROM, _TO))
    times: dict[int, float] = {}
    before = traffic.so_far()
    with streamkit.Pipeline(plan, device=spec["device"]) as pipeline:
        if kind == "jsonl":
            pipeline.start()
            for bar in (low, high):
                while (done := pipeline.stats.frames) < bar:
                    time.sleep(_POLL_S)
                times[done] = time.perf_counter()
            pipeline.wait()
        else:
            if kind == "torch":
                import torch
            for number, frame in enumerate(pipeline):
                assert frame.detections.score.size >= 0
                if kind == "torch":
                    tensor = torch.from_dlpack(frame.rgb())
                    assert tensor.device.type == choose(spec["device"]).kind
                if number in (low, high):
                    times[number] = time.perf_counter()
        (first, begun), (last, ended) = times.items()
        report = pipeline.report
    copied = traffic.so_far().to_host - before.to_host
    return {
        "fps": round((last - first) / (ended - begun), 1),
        "frames": report["frames"],
        "to_host_bytes_per_frame": round(copied / max(1, report["frames"]), 1),
        "pixels_to_host": report["counts"].get("pixels to host", 0),
        "dropped": sum(n for name, n in report["counts"].items() if name.startswith("frames dropped")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--model", help="a card; by default YOLOX-nano in f16, of the folder --data")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sources", type=int, default=1)
    parser.add_argument("--frames", type=int, default=1000, help="per source")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--cuda-graph", action="store_true")
    parser.add_argument("--out", type=Path, help="JSON with every run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        kind, spec = json.loads(args.one)
        print(json.dumps(measure(kind, spec)))
        return
    kinds = ["jsonl", "loop", *(["torch"] if args.torch else [])]
    with scratch_folder() as name:
        folder = Path(name)
        clip = folder / f"clip{args.clip.suffix}"
        model, _ = network(args.model, args.data, folder, "f16")
        spec = {
            "clip": str(clip), "frames": lengthen(args.clip, clip, args.frames), "sources": args.sources,
            "model": model, "device": args.device, "batch": args.batch, "out": str(folder / "out"),
            "detect": {"cuda_graph": True} if args.cuda_graph else {},
        }  # fmt: skip
        rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
        for _ in range(args.pairs):
            for kind in kinds:
                command = [sys.executable, __file__, str(clip), "--one", json.dumps([kind, spec])]
                output = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True)
                rows[kind].append(json.loads(output.stdout.splitlines()[-1]))
                print(kind, rows[kind][-1], flush=True)
    for kind in kinds[1:]:
        ratios = [ours["fps"] / base["fps"] for ours, base in zip(rows[kind], rows["jsonl"], strict=True)]
        print(f"{kind} over jsonl: {', '.join(f'{ratio:.3f}' for ratio in ratios)}; median {median(ratios):.3f}")
    if args.out:
        args.out.write_text(json.dumps({"spec": spec, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
