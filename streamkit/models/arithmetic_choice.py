# SPDX-License-Identifier: Apache-2.0
"""The arithmetic that was chosen for a network on a GPU, kept in the user's folder.

The first process that decides writes the file; the others, and later runs, read it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import typing
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.core.data import Device
from streamkit.core.errors import OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file, writing
from streamkit.models.arithmetic import F32, Arithmetic, EngineName, PrecisionName, candidates, pinned_precision
from streamkit.models.card import Card, family_of
from streamkit.models.network import network_hash
from streamkit.models.versions import gpu_versions

logger = logging.getLogger(__name__)

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class ArithmeticChoice:
    """A decision.

    Attributes:
        engine, precision: see `Arithmetic`.
        reason: what was compared, a text for the user.
        expires_at_s: seconds since 1970 after which it is made again, as a failure may be gone then; None for never.
    """

    engine: EngineName
    precision: PrecisionName
    reason: str
    expires_at_s: float | None = None

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic."""
        return Arithmetic(self.engine, self.precision)


def choice_file(network: Path, size: tuple[int, int], gpu: str, allowed: Sequence[Arithmetic]) -> Path:
    """Return the file for a network's choice.

    Args:
        network: its ONNX file.
        size: width and height of its images.
        gpu: name of the GPU and versions of what computes, which the choice depends on.
        allowed: the arithmetics that it is made among.
    """
    key = json.dumps([_FORMAT, network_hash(network), size, gpu, [str(arithmetic) for arithmetic in allowed]])
    return user_cache("arithmetic", f"{network.stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")


def read_choice(file: Path) -> ArithmeticChoice | None:
    """Return the choice in a file; None if there is none, it has expired, or the file is damaged, which is logged."""
    try:
        fields = json.loads(file.read_bytes())
        choice = ArithmeticChoice(
            str(fields["engine"]),  # type: ignore[arg-type]
            str(fields["precision"]),  # type: ignore[arg-type]
            str(fields["reason"]),
            None if fields["expires_at_s"] is None else float(fields["expires_at_s"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning(f"{file} is not a choice that can be read ({error}); it is made again")
        return None
    if choice.engine not in typing.get_args(EngineName) or choice.precision not in typing.get_args(PrecisionName):
        logger.warning(f"{file} names an arithmetic that this version lacks; it is chosen again")
        return None
    return None if choice.expires_at_s is not None and choice.expires_at_s < time.time() else choice


def write_choice(file: Path, choice: ArithmeticChoice) -> ArithmeticChoice:
    """Write a choice, unless another process was first; return the one in the file."""
    earlier = read_choice(file)
    if earlier is not None:
        return earlier
    try:
        with writing(file):
            _write_first(file, _encoded(choice))
    except OutputError as error:
        _warn_of(file, error)
    return read_choice(file) or choice


def replace_choice(file: Path, choice: ArithmeticChoice) -> None:
    """Write a choice in place of an earlier one."""
    try:
        write_cache_file(file, _encoded(choice))
    except OutputError as error:
        _warn_of(file, error)


def _write_first(file: Path, content: bytes) -> None:
    """Write a whole file unless there is one; a damaged one is replaced."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.urandom(4).hex()}.part")
    try:
        part.write_bytes(content)
        try:
            os.link(part, file)  # which fails if another process or thread was first
        except FileExistsError:
            if read_choice(file) is None:
                os.replace(part, file)
        except OSError:  # a file system without links
            os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def _encoded(choice: ArithmeticChoice) -> bytes:
    return json.dumps(asdict(choice), indent=1).encode() + b"\n"


def _warn_of(file: Path, error: OutputError) -> None:
    logger.warning(f"the arithmetic of {file.stem} is chosen again at each start: {error}")


def describe_arithmetic(card: Card, engine: str, precision: str, device: Device) -> str:
    """Return how a network will be computed, as a text for the user."""
    allowed = candidates(engine, pinned_precision(card.precision, precision), device)
    if len(allowed) == 1:
        return f"{card.file.name} runs in {allowed[0]}"
    if not card.file.is_file():
        return f"{card.file} is missing"
    if family_of(card).takes_clips:
        return f"{card.file.name} runs in {F32}: precisions are compared on single images; set precision to choose"
    choice = read_choice(choice_file(card.file, card.input.size, gpu_versions(device.index), allowed))
    if choice is None or choice.arithmetic not in allowed:
        return f"{card.file.name} begins in {F32}: the first run decides whether a faster arithmetic finds the same"
    return f"{card.file.name} runs in {choice.arithmetic}: {choice.reason}"
