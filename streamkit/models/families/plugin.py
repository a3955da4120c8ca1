# SPDX-License-Identifier: Apache-2.0
"""Network families of plugins: a plain function from a network's outputs to candidates.

`@family` registers a function. Thresholds, non-max suppression and the conversion to source pixels are those of the
built-in families. A family belongs to the registry of its pipeline, so that two pipelines of one process may have
different families of one name.
"""

from __future__ import annotations

import ast
import inspect
import operator
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.core.errors import describe
from streamkit.core.stage import current_registry
from streamkit.models.families.base import Family, Outputs, PlainImage, Shapes, Size, fits, listed
from streamkit.ops.candidates import Coding, best_class, labeled_class
from streamkit.ops.transfer import fetch

Decode = Callable[..., Any]
"""The function of a family: the outputs by name and (width, height) of the input in, candidates out."""
Dimension = int | str
_Decode = TypeVar("_Decode", bound=Decode)

_SIZE_NAMES = ("classes", "width", "height")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_RETURNS = "it must return (boxes, class_scores) or (boxes, scores, class_ids)"


class DecodedBoxes(NamedTuple):
    """What a family's function returns, checked.

    Attributes:
        boxes: (n, a, 4) x1, y1, x2, y2 in network pixels.
        scores: (n, a, classes), or (n, a) with `labels`.
        labels: (n, a) integers, or None.
    """

    boxes: Array
    scores: Array
    labels: Array | None


@dataclass(frozen=True, kw_only=True)
class PluginFamily(Family):
    """A family that a plugin defines with `@family`.

    Attributes:
        name: the name in a card.
        decode: the function, for NumPy arrays.
        outputs: name and dimensions of each output that it reads, for one image.
        suppress: whether non-max suppression follows.
        cuda: the function for CuPy arrays; None if there is none.
        input_size: width and height of the network's input; 0 if they are unknown.
    """

    name: str
    decode: Decode
    outputs: tuple[tuple[str, tuple[Dimension, ...]], ...]
    suppress: bool = True
    cuda: Decode | None = None
    input_size: Size = (0, 0)

    @property
    def host_only(self) -> bool:  # type: ignore[override]  # a constant of the built-in families
        """See `Family`."""
        return self.cuda is None

    @property
    def origin(self) -> tuple[str, str]:
        """The file and the qualified name of the function."""
        code = getattr(inspect.unwrap(self.decode), "__code__", None)
        return getattr(code, "co_filename", self.decode.__module__), getattr(self.decode, "__qualname__", self.name)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.decode) or "").split("\n", 1)[0]

    def for_input(self, size: Size) -> PluginFamily:
        """Return the family for networks with an input of this width and height."""
        return replace(self, input_size=size)

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`: the network must have the declared outputs."""
        lacking = [name for name, _ in self.outputs if name not in outputs]
        if lacking:
            raise ValueError(self._refusal(f"the network has no output {', '.join(lacking)}; it has {listed(outputs)}"))
        sizes = {"classes": classes, "width": self.input_size[0], "height": self.input_size[1]}
        open_sizes: dict[str, tuple[int, str]] = {}
        for name, declared in self.outputs:
            shape = tuple(outputs[name])
            text = f"output {name!r} must be {self._declared(declared)}, its shape is {shape}"
            if len(shape) != 1 + len(declared):
                raise ValueError(self._refusal(f"{text}: it has {len(shape)} dimensions"))
            for axis, (size, dimension) in enumerate(zip(shape[1:], declared, strict=True), 1):
                expected = _size(dimension, sizes)
                if isinstance(dimension, str) and expected is None and isinstance(size, int) and size > 0:
                    expected, other = open_sizes.setdefault(dimension, (size, name))
                    where = f"; {dimension} is {expected} in output {other!r}"
                else:
                    where = (
                        f"; {dimension} is {expected}, with {self._sizes(sizes)}" if isinstance(dimension, str) else ""
                    )
                if expected is not None and not fits(size, expected):
                    raise ValueError(self._refusal(f"{text}: dimension {axis} must be {expected}{where}"))

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: the plugin's author lists the outputs to read, and leaves the others."""
        return frozenset(outputs)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`; outputs on a GPU are copied to the host if the family has no CUDA variant."""
        used = self.used(outputs, n)
        if self.host_only:
            used = dict(zip(used, fetch(list(used.values()))(), strict=True))
        boxes, scores, labels = self.call(used, n, input_size, len(min_score))
        if labels is None:
            return best_class(boxes, scores, min_score=min_score, coding=Coding.XYXY, input_size=input_size)
        return labeled_class(boxes, scores, labels, min_score=min_score)

    def used(self, outputs: Outputs, n: int) -> dict[str, Array]:
        """See `Family.used`."""
        return {name: outputs[name][:n] for name, _ in self.outputs}

    def call(self, outputs: Outputs, n: int, input_size: Size, classes: int) -> DecodedBoxes:
        """Call the function for n images, on the outputs' device, and check what it returns.

        Raises:
            ValueError: a returned array has a wrong shape or dtype; names the plugin.
        """
        xp = array_module(next(iter(outputs.values())))
        decode = self.decode if xp is np or self.cuda is None else self.cuda
        wide = {
            name: value.astype(np.float32, copy=False) if value.dtype.kind == "f" else value
            for name, value in outputs.items()
        }
        with np.errstate(all="ignore"):  # values that are not finite are counted
            try:
                returned = decode(wide, input_size)
            except Exception as error:  # a plugin may raise anything
                raise ValueError(self._refusal(describe(error), self._line(error))) from error
        return self._checked(returned, n, classes, xp)

    def reference_rows(self, image: PlainImage) -> np.ndarray:
        """See `Family.reference_rows`: by the plugin's function."""
        batch = {name: image.outputs[name][None] for name, _ in self.outputs}
        decoded = self.call(batch, 1, image.input_size, 0)
        boxes = decoded.boxes[0].astype(np.float64)
        scores = decoded.scores[0].astype(np.float64)
        if decoded.labels is None:
            return np.column_stack([boxes, scores.max(axis=1), scores.argmax(axis=1)])
        return np.column_stack([boxes, scores, decoded.labels[0]])

    def _checked(self, returned: Any, n: int, classes: int, xp: Any) -> DecodedBoxes:
        """Check what the function returns; `classes` is 0 if the number is unknown."""
        if not isinstance(returned, tuple) or len(returned) not in (2, 3):
            got = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
            raise ValueError(self._refusal(f"{_RETURNS}, got {got}"))
        has_labels = len(returned) == 3
        names = ("boxes", "scores", "class_ids") if has_labels else ("boxes", "class_scores")
        a = returned[0].shape[1] if getattr(returned[0], "ndim", 0) == 3 else 0
        shapes = [(n, a, 4), (n, a), (n, a)] if has_labels else [(n, a, 4), (n, a, classes or "classes")]
        for name, array, shape in zip(names, returned, shapes, strict=True):
            rule = f"{name} must be ({', '.join(map(str, (n, 'anchors', *shape[2:])))})"
            if not hasattr(array, "dtype") or array_module(array) is not xp:
                raise ValueError(self._refusal(f"{rule} as an array of {xp.__name__}, got {type(array).__name__}"))
            if len(array.shape) != len(shape) or not all(map(_equal, array.shape, shape)):
                raise ValueError(self._refusal(f"{rule}, got {tuple(array.shape)}"))
            kinds, what = ("iu", "integers") if name == "class_ids" else ("f", "floats")
            if array.dtype.kind not in kinds:
                raise ValueError(self._refusal(f"{name} must be {what}, got {array.dtype}"))
        boxes, scores = (raw.astype(np.float32, copy=False) for raw in returned[:2])
        return DecodedBoxes(boxes, scores, returned[2].astype(np.int64, copy=False) if has_labels else None)

    def _refusal(self, text: str, line: str = "") -> str:
        return f"family {self.name} of {self.origin[0]}{line}: {text}"

    def _line(self, error: Exception) -> str:
        """Return the innermost line of the plugin that an error went through, as `:12`."""
        lines = [
            entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == self.origin[0]
        ]
        return f":{lines[-1]}" if lines else ""

    def _declared(self, dimensions: Sequence[Dimension]) -> str:
        return f"(batch, {', '.join(map(str, dimensions))})"

    def _sizes(self, sizes: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {value}" for name, value in sizes.items())


def _equal(size: int, expected: int | str) -> bool:
    """Whether a size is the expected one; text stands for any size."""
    return isinstance(expected, str) or size == expected


def family(
    name: str,
    *,
    outputs: Mapping[str, Sequence[Dimension]] | None = None,
    nms: bool = True,
    cuda: bool | Decode = False,
) -> Callable[[_Decode], _Decode]:
    """Declare a function as the decoder of a network family, which cards name as `family: NAME`.

    The function receives the outputs of a batch of n images, a dict of arrays (n, ...) by name, floats as float32; and
    the network's (width, height). It returns candidates in network pixels, in one of two forms:

    - `boxes, class_scores`: (n, a, 4) x1, y1, x2, y2 and (n, a, classes); an anchor's best class counts;
    - `boxes, scores, class_ids`: (n, a, 4), (n, a), and (n, a) integers, indices into the card's labels.

    Thresholds, non-max suppression, the conversion to source pixels and clipping follow, as for built-in families. A
    score below 0 marks an anchor that is no candidate.

    Args:
        name: the name in a card.
        outputs: for each output that the function reads, its dimensions for one image, without the batch. A dimension
            is a number; text of numbers, `classes`, `width`, `height` and + - * //; or another name for an open size,
            which is equal wherever it occurs.
        nms: whether non-max suppression follows.
        cuda: a function for CuPy arrays; `True` if the function itself takes both kinds of arrays. Without one, the
            outputs are copied to the host, and the copies are counted.

    Raises:
        TypeError: the declaration is invalid.
    """
    if not isinstance(name, str) or not name:
        raise TypeError('@family needs the name that cards use: write @family("my_family", outputs={...})')
    declared = _declaration(name, outputs)
    if not (isinstance(cuda, bool) or callable(cuda)):
        raise TypeError(f"family {name!r}: cuda must be a function for CuPy arrays, True or False, got {cuda!r}")

    def decorate(function: _Decode) -> _Decode:
        if not callable(function):
            raise TypeError(f"family {name!r} must be a function of outputs and input_size, got {function!r}")
        on_gpu = None if cuda is False else function if cuda is True else cuda
        current_registry().add_family(
            PluginFamily(name=name, decode=function, outputs=declared, suppress=nms, cuda=on_gpu)
        )
        return function

    return decorate


def _declaration(name: str, outputs: Any) -> tuple[tuple[str, tuple[Dimension, ...]], ...]:
    """Check the declared outputs. Raises TypeError."""
    example = 'outputs={"output": ("anchors", "classes + 4")}, the dimensions of each output for one image'
    if not isinstance(outputs, Mapping) or not outputs:
        raise TypeError(f"family {name!r} must declare its outputs, as in {example}; got {outputs!r}")
    checked = []
    for output, dimensions in outputs.items():
        if isinstance(dimensions, (str, int)) or not all(isinstance(dimension, (str, int)) for dimension in dimensions):
            raise TypeError(f"family {name!r}: output {output!r} must have a tuple of dimensions, as in {example}")
        for dimension in dimensions:
            try:
                _size(dimension, dict.fromkeys(_SIZE_NAMES, 1))
            except (ValueError, SyntaxError, ZeroDivisionError):
                raise TypeError(
                    f"family {name!r}: the dimension {dimension!r} of output {output!r} must be a number, a name, or a "
                    f"sum or product of numbers and {', '.join(_SIZE_NAMES)}, such as 'classes + 4'"
                ) from None
        checked.append((str(output), tuple(dimensions)))
    return tuple(checked)


def _size(dimension: Dimension, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a declared dimension; None for a name that is not known. Raises ValueError, SyntaxError."""
    if isinstance(dimension, int):
        return dimension
    node = ast.parse(dimension, mode="eval").body
    if isinstance(node, ast.Name) and node.id not in sizes:
        return None
    return _evaluate(node, sizes)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left, sizes), _evaluate(right, sizes))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, sizes)
    raise ValueError(ast.unparse(node))
