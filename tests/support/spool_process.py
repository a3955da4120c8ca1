"""A pipeline with an emitter, run as a separate process that can be killed.

    python spool_process.py OPTIONS SOURCES FRAMES RATE

Sends paced frames of some sources; prints `SOURCE INDEX` once `append` has returned for the frames up to that.
"""

import json
import logging
import sys

from benchmarks.emitters import add_stages
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.stage import default_registry
from streamkit.emit.emitter import Emitter
from streamkit.runtime.pipeline import PipelineRun


def main() -> int:
    options = sys.argv[1]
    names = sys.argv[2].split(",")
    count = int(sys.argv[3])
    rate = int(sys.argv[4])
    write = Emitter.write_encoded
    write_lines = Emitter.write_lines
    flush = Emitter.flush
    last: dict[str, int] = {}

    def write_and_note(self, frame, encoded):
        write(self, frame, encoded)
        last[frame.source] = frame.index

    def write_lines_and_note(self, frames, lines):
        write_lines(self, frames, lines)
        last.update((frame.source, frame.index) for frame in frames)

    def flush_and_print(self):
        flush(self)
        lines_text = "".join(f"{source} {index}\n" for source, index in last.items())
        last.clear()
        if lines_text:
            sys.stdout.write(lines_text)
            sys.stdout.flush()

    Emitter.write_encoded = write_and_note
    Emitter.write_lines = write_lines_and_note
    Emitter.flush = flush_and_print
    registry = default_registry()
    add_stages(registry)
    each = {"stage": "numbered_frames", "uri": "none", "count": count, "rate": rate}
    text = json.dumps({"device": "cpu", "sources": dict.fromkeys(names, each), "stages": {"out": json.loads(options)}})
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # on standard error
    return PipelineRun(build(read_text(text, registry=registry)), Device("cpu")).run()


if __name__ == "__main__":
    sys.exit(main())
