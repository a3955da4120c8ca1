"""Which video stream of a container is read."""

from __future__ import annotations

from typing import Any

from streamkit.errors import SourceError

_DEFAULT_PIXELS = 5_000_000
"""By so much a stream that is marked as the default one outranks others; FFmpeg's own figure."""


def choose_stream(container: Any, number: int | None, name: str, *, is_file: bool) -> Any:
    """The video stream to read; a cover image is none.

    Args:
        container: an `av.container.InputContainer`.
        number: which one, from 0; None for the best.
        name: the address to name in errors, masked.
        is_file: whether it is a file's.

    Raises:
        SourceError: there is no video stream, none of that number, or no decoder for it.
    """
    import av

    found = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not found:
        raise SourceError(f"{name} has no video stream", cause="no_video" if is_file else "codec")
    if number is not None and number >= len(found):
        most = len(found) - 1
        allowed = f"0 to {most}" if most else "0"
        has = f"{most + 1} video stream{'s' * (most > 0)}"
        raise SourceError(f"{name}: stream must be {allowed}, for it has {has}, got {number}", cause="no_video")
    chosen = max(found, key=_rank) if number is None else found[number]
    if not chosen.codec_context:
        raise SourceError(f"{name}: no decoder here knows its codec", cause="codec")
    return chosen


def _rank(stream: Any) -> int:
    """How good a video stream is, as the command `ffmpeg` ranks them; of equal ones it takes the first."""
    import av

    context = stream.codec_context
    pixels = context.width * context.height if context else -1
    return int(pixels + _DEFAULT_PIXELS * bool(stream.disposition & av.stream.Disposition.default))
