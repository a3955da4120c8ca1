# SPDX-License-Identifier: Apache-2.0
"""The arithmetic that was chosen for a network on a GPU, kept in the user's folder.

The first process that decides writes the file; the others, and later runs, read it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import typing
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.core.errors import OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import AtomicFile
from streamkit.models.arithmetic import Arithmetic, EngineName, PrecisionName
from streamkit.models.network import sha256

logger = logging.getLogger(__name__)

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ArithmeticChoice:
    """A decision.

    Attributes:
        engine, precision: see `Arithmetic`.
        reason: what was compared, a text for the user.
    """

    engine: EngineName
    precision: PrecisionName
    reason: str

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic."""
        return Arithmetic(self.engine, self.precision)


def choice_file(network: Path, size: tuple[int, int], gpu: str) -> Path:
    """Return the file for a network's choice.

    Args:
        network: its ONNX file.
        size: width and height of its images.
        gpu: name of the GPU and versions of what computes, which the choice depends on.
    """
    key = json.dumps([_FORMAT, sha256(network), size, gpu])
    return user_cache("arithmetic", f"{network.stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")


def read_choice(file: Path) -> ArithmeticChoice | None:
    """Return the choice in a file; None if there is none, or the file is damaged, which is logged."""
    try:
        fields = json.loads(file.read_bytes())
        choice = ArithmeticChoice(str(fields["engine"]), str(fields["precision"]), str(fields["reason"]))  # type: ignore[arg-type]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning(f"{file} is not a choice that can be read ({error}); it is made again")
        return None
    if choice.engine not in typing.get_args(EngineName) or choice.precision not in typing.get_args(PrecisionName):
        logger.warning(f"{file} names an arithmetic that this version lacks; it is chosen again")
        return None
    return choice


def write_choice(file: Path, choice: ArithmeticChoice) -> ArithmeticChoice:
    """Write a choice, unless another process was first; return the one in the file."""
    earlier = read_choice(file)
    if earlier is not None:
        return earlier
    try:
        AtomicFile(file, unique=True).write(json.dumps(asdict(choice), indent=1).encode() + b"\n")
    except OutputError as error:
        logger.warning(f"the arithmetic of {file.stem} is chosen again at each start: {error}")
    return read_choice(file) or choice
