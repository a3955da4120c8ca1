"""The process that talks to a receiver of a stream: run as a module by `media.push`, never imported by it.

FFmpeg's connecting cannot be interrupted, and PyAV lets no other Python thread run meanwhile. So a receiver that hangs
would hang the whole pipeline; here it hangs a process that can be ended.

On its standard input come one line of JSON, `{"url": ..., "format": ..., "options": {...}}`, and then a video in the
NUT container, whose packets go out as they are. It prints `connected` when the receiver has taken the stream's
description, and for what goes wrong a line on its standard error. It ends when its input does.
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
        # the header says all: no packet has to be looked at, and held back, to know the stream
        options = {"analyzeduration": "0", "probesize": "32", "fpsprobesize": "0"}
        with av.open("pipe:0", format="nut", options=options) as source:
            stream = source.streams.video[0]
            with av.open(asked["url"], "w", format=asked["format"], options=asked["options"]) as sink:
                out = sink.add_stream_from_template(stream, opaque=True)
                sink.start_encoding()
                print("connected", flush=True)
                for packet in source.demux(stream):
                    if packet.size:
                        packet.dts = packet.pts  # NUT does not tell; nobody encodes B pictures for a live stream
                        packet.stream = out
                        sink.mux_one(packet)
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        print(" ".join(str(getattr(error, "strerror", None) or error).split()), file=sys.stderr)
        return 1
    return 0


def _line() -> bytes:
    """The first line of the standard input, and not one byte more."""
    found = b""
    while not found.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            sys.exit(1)
        found += more
    return found


if __name__ == "__main__":
    sys.exit(main())
