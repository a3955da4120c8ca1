"""The built-in stages, one file each.

    source ─► decode ─► preprocess ─► infer ─► postprocess ─► draw ─► video
                        └────────── detect ───────────┘  └──► jsonl, csv

A source decodes into NV12 surfaces; `detect` stands for the three stages below it; sinks hand on what they were given.
Every module of this folder is loaded when the built-in stages are listed: a new stage is a new file, nothing else.
"""
