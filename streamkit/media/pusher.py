"""The process that talks to a receiver of a stream; `media.push` runs it as a module and never imports it.

FFmpeg's connecting cannot be interrupted, and PyAV holds the GIL meanwhile. A receiver that hangs would therefore hang
the whole pipeline; here it hangs a process that can be killed.

Standard input contains one line of JSON, `{"url": ..., "format": ..., "options": {...}}`, and then a video in the NUT
container, whose packets are sent as they are. The process prints `connected` once the receiver has accepted the
stream's description, and errors as one line on standard error. It exits at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    """Push until the input ends; return the exit code."""
    import av

    asked = json.loads(_line())
    try:
        # the header describes the stream completely: no packets need to be probed and buffered
        options = {"analyzeduration": "0", "probesize": "32", "fpsprobesize": "0"}
        with av.open("pipe:0", format="nut", options=options) as source:
            stream = source.streams.video[0]
            with av.open(asked["url"], "w", format=asked["format"], options=asked["options"]) as sink:
                out = sink.add_stream_from_template(stream, opaque=True)
                sink.start_encoding()
                print("connected", flush=True)
                for packet in source.demux(stream):
                    if packet.size:
                        packet.dts = packet.pts  # NUT has no DTS; live streams have no B frames
                        packet.stream = out
                        sink.mux_one(packet)
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        print(" ".join(str(getattr(error, "strerror", None) or error).split()), file=sys.stderr)
        return 1
    return 0


def _line() -> bytes:
    """Read the first line of standard input, and not one byte more."""
    found = b""
    while not found.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            sys.exit(1)
        found += more
    return found


if __name__ == "__main__":
    sys.exit(main())
