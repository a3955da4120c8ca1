"""Selects the video stream of a container."""

from __future__ import annotations

from typing import Any

from streamkit.core.errors import SourceError

_DEFAULT_PIXELS = 5_000_000
"""By so much a stream that is marked as the default one outranks others; FFmpeg's own figure."""


def choose_stream(container: Any, number: int | None, name: str, *, is_file: bool) -> Any:
    """Select the video stream to read; cover images do not count.

    Args:
        container: an `av.container.InputContainer`.
        number: index of the stream, from 0; None for the best.
        name: masked address for errors.
        is_file: whether the container is a file.

    Raises:
        SourceError: there is no video stream, none with that index, or no decoder for it.
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
    """Rank of a video stream, as in the command `ffmpeg`, which uses the first of equal ones."""
    import av

    context = stream.codec_context
    pixels = context.width * context.height if context else -1
    return int(pixels + _DEFAULT_PIXELS * bool(stream.disposition & av.stream.Disposition.default))
