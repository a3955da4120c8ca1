# SPDX-License-Identifier: Apache-2.0
"""The process that talks to a receiver of a stream; `media.push` runs it as a module and never imports it.

FFmpeg's connecting cannot be interrupted, and PyAV holds the GIL meanwhile. A receiver that hangs would therefore hang
the whole pipeline; here it hangs a process that can be killed.

Standard input contains one line of JSON, `{"url": ..., "format": ..., "options": {...}}`, and then a video in the NUT
container, whose packets are sent as they are. The process prints `connected` once the receiver has accepted the
stream's description, and errors as one line on standard error. It exits at the end of its input.
"""

from __future__ import annotations

import faulthandler
import io
import json
import sys


def main() -> int:
    """Push until the input ends; return the exit code."""
    import av

    faulthandler.enable()
    try:
        request = json.loads(io.FileIO(0, closefd=False).readline())  # without a buffer: not one byte more
        # the header describes the stream completely: no packets need to be probed and buffered
        options = {"analyzeduration": "0", "probesize": "32", "fpsprobesize": "0"}
        with av.open("pipe:0", format="nut", options=options) as source:
            stream = source.streams.video[0]
            with av.open(request["url"], "w", format=request["format"], options=request["options"]) as sink:
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


if __name__ == "__main__":
    sys.exit(main())
