# SPDX-License-Identifier: Apache-2.0
"""The built-in stages, one file each.

    source ─► decode ─► preprocess ─► infer ─► postprocess ─► draw ─► video
                        └────────── detect ───────────┘  └──► jsonl, csv

A source decodes into NV12 surfaces; `detect` stands for the three stages below it; sinks pass frames on unchanged.
All modules of this folder are loaded when the built-in stages are listed, so a new stage needs only a new file.
"""
