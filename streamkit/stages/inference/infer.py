# SPDX-License-Identifier: Apache-2.0
"""Inference with ONNX Runtime, and the parts around it that composites with a network share."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any

import numpy as np

from streamkit.core.batch_buckets import steps
from streamkit.core.crops import LazyOutputs, LazyRows
from streamkit.core.data import Batch
from streamkit.core.errors import DeviceError, describe
from streamkit.core.stage import BatchStage, CompositePart, Count, Stage, stage
from streamkit.core.tasks import Future
from streamkit.engine.errors import EngineError
from streamkit.media.uris import is_device, is_path, local_path
from streamkit.models.agreement import Images
from streamkit.models.arithmetic import (
    F32,
    Arithmetic,
    Engine,
    Precision,
    candidates,
    check_arithmetic,
    pinned_precision,
)
from streamkit.models.arithmetic_choice import ArithmeticChoice, choice_file, read_choice, replace_choice
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.models.families.base import stack_images
from streamkit.models.finite_values import FiniteValues
from streamkit.models.network import check_model, takes_single_images, wrong
from streamkit.models.network_rate import rate_file, write_rate
from streamkit.models.onnx_graph import is_quantized
from streamkit.models.onnxruntime_package import need_onnxruntime
from streamkit.models.prompts import Prompts, check_prompts, prepare
from streamkit.models.session import Session, on_this_stream
from streamkit.models.shared_inputs import SharedInputs
from streamkit.models.tensorrt import EXPERIMENTAL
from streamkit.models.text_encoder import tokenizers
from streamkit.models.versions import gpu_versions
from streamkit.stages.inference.arithmetic_trial import ArithmeticTrial, Run, compare_on_files
from streamkit.stages.inference.preprocess import FewRows, Preprocess, run_sizes

logger = logging.getLogger(__name__)

UNTUNED = "batches before tuning"
NOT_FINITE = "looks at outputs that were not finite"
# of runs of other sizes; the end of a file gives them for less
_OTHERS_AFTER_S = 5.0
_PAUSE_S = 1.0

Threads = Annotated[Count | None, "CPU threads of one run; by default the machine's cores divided among the instances."]

PromptTexts = Annotated[
    list[str] | None,
    "what to find, in words, with an open-vocabulary network: [forklift, person without helmet]. The texts are the "
    "labels of the objects.",
]


class _Sustained:
    """Whether something happens for some time.

    Args:
        after_s: for how long.
        pause_s: a longer pause ends it.
    """

    def __init__(self, after_s: float, pause_s: float) -> None:
        self._after_s = after_s
        self._pause_s = pause_s
        self._since_s = 0.0
        self._last_s = -math.inf

    def again(self, now_s: float) -> bool:
        """Note that it happens at this monotonic time, and return whether it has for `after_s`."""
        if now_s - self._last_s > self._pause_s:
            self._since_s = now_s
        self._last_s = now_s
        return now_s - self._since_s >= self._after_s


@stage("infer", reads="tensor", writes="outputs", splits_tensor=True, warms_up=True, changeable=("prompts",))
class Infer(BatchStage):
    """Run an ONNX network on the batch's tensor.

    Inputs and outputs stay on the pipeline's device. Without `engine` and `precision`, a GPU takes the fastest
    arithmetic that finds the same objects as f32 on the first images. Files wait for that decision; cameras begin in
    f32 and switch once. The decision is kept for later runs. New prompts are embedded in the background, and a batch
    has either the old or the new ones.
    """

    model: Annotated[Model, "the model card."]
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None
    batch: Annotated[Count | None, "maximum number of rows in one run; by default, of frames in a batch."] = None
    few_rows: FewRows = False
    prompts: PromptTexts = None
    window: Annotated[
        Count | None, "number of frames of a clip, for a network that takes clips and leaves it open."
    ] = None

    def __post_init__(self) -> None:
        """Check the prompts, and that engine and precision do not contradict each other."""
        check_prompts(self.model, self.prompts)
        check_arithmetic(self.engine, self.model.precision, self.precision)

    @property
    def _pinned(self) -> str:
        """The precision that the option or the card sets; `auto` if neither does."""
        return pinned_precision(self.model.precision, self.precision)

    def probe(self) -> None:
        """Check that ONNX Runtime is installed, and the tokenizer's package if the network takes prompts."""
        need_onnxruntime()
        if self.model.takes_prompts:
            tokenizers()

    def open(self) -> None:
        """Load the network and run every batch size once.

        On a GPU, finding the fastest way to run each convolution takes seconds per batch size. The first batches
        therefore run on a session that loads quickly but runs slowly, until the tuned session is ready in the
        background. The runtime tunes at once where many live sources would otherwise lose frames meanwhile. For files,
        whose batches are full, only the largest size is tuned; others run padded, and are tuned if they keep coming.
        """
        self._card = check_model(self.model)
        self._family = family_of(self._card)
        self._single_image = takes_single_images(self._card)
        self._sizes = (1,) if self._single_image else run_sizes(self.context, self.batch, self.few_rows)
        self._tuned: Future[Session] | None = None
        self._others: Future[None] | None = None
        self._others_due: _Sustained | None = None
        self._prompts = self._prepare(self.prompts or ())
        self._next: Future[Prompts] | None = None
        self._trial: ArithmeticTrial | None = None
        self._unused: Future[Session] | None = None
        self._stays = False  # in f32, whatever is decided
        self._counters = self.context.counters  # others are counted in while the lane warms up with blank frames
        if self.engine == "tensorrt":
            logger.warning(EXPERIMENTAL)
        self._finite: FiniteValues | None = None
        self._open_in(*self._choose())
        self._report()

    def _choose(self) -> tuple[Arithmetic, Session | None]:
        """Return the arithmetic to begin with, and a session in it if there is one.

        If none was chosen before, compare faster ones with f32: on the run's files, and otherwise beside the run.
        """
        device = self.context.device
        allowed = candidates(self.engine, self._pinned, device)
        if len(allowed) == 1 or device.kind == "cpu":
            return allowed[0], None
        if self._family.takes_clips:
            logger.info(
                f"{self._card.file.name} runs in {F32}: precisions are compared on single images; set precision to "
                "choose"
            )
            return F32, None
        file = choice_file(self._card.file, self._card.input.size, gpu_versions(device.index), allowed)
        choice = read_choice(file)
        if choice is not None and choice.arithmetic in allowed:
            logger.info(f"{self._card.file.name} runs in {choice.arithmetic}: {choice.reason}")
            return choice.arithmetic, None
        largest = self._sizes[-1:]
        self.context.runtime.opening_note = "comparing precisions, first run of this network only"
        trial = ArithmeticTrial(self._card, allowed, lambda faster: self._load(largest, faster), file)
        addresses = self.context.runtime.addresses.values()
        files = [local_path(uri) for uri in addresses if is_path(uri) and not is_device(uri)]
        if trial.choice is None and files:
            reference = self._load(largest, F32, quick=True)
            labels = self._prompts.texts or self._card.labels
            compare_on_files(trial, reference, self._card, labels, files, reference.fixed_batch or largest[0])
        if trial.choice is not None:
            return trial.choice.arithmetic, trial.session
        self._trial = trial
        return F32, None

    def _open_in(self, arithmetic: Arithmetic, session: Session | None = None) -> None:
        """Open the session in an arithmetic; for the fused engine, fall back to ONNX Runtime if it cannot be used."""
        device = self.context.device
        future = self.context.runtime.future
        if session is not None:
            self._begin_with(session)
            return
        waits = device.kind == "cpu" or future.at_once or arithmetic.engine != "onnxruntime"
        if waits:
            self._begin_with(self._load_or_fall_back(arithmetic))
            return
        self._session = self._load(self._sizes, arithmetic, quick=True)
        tune = on_this_stream(self._load, device)
        sizes = self._sizes[-1:] if future.held else self._sizes
        self._others_due = None if sizes == self._sizes else _Sustained(_OTHERS_AFTER_S, _PAUSE_S)
        self._tuned = future(lambda dropped: tune(sizes, arithmetic, dropped=dropped))

    def _begin_with(self, session: Session) -> None:
        """Take a session that is ready for the largest size; others run padded until they keep coming."""
        self._session = session
        if self.context.device.kind == "cuda" and not all(map(session.is_warm, self._sizes)):
            self._others_due = _Sustained(_OTHERS_AFTER_S, _PAUSE_S)
        self._finite = FiniteValues() if session.arithmetic.precision == "f16" else None

    def _load_or_fall_back(self, arithmetic: Arithmetic) -> Session:
        try:
            sizes = self._sizes[-1:] if arithmetic.engine == "fused" else self._sizes
            return self._load(sizes, arithmetic)
        except EngineError as error:
            if self.engine == "fused":
                raise DeviceError(
                    f"{self._card.file.name} cannot run in the fused engine: {error}; use engine: auto"
                ) from None
            other = F32 if self._pinned == "auto" else Arithmetic("onnxruntime", arithmetic.precision)
            logger.warning(f"{self._card.file.name} runs in {other}: the fused engine cannot run it: {error}")
            return self._load(self._sizes, other)

    def changed(self) -> None:
        """Begin to embed new prompts; the network goes on with the old ones until they are ready."""
        check_prompts(self.model, self.prompts)
        if self._next is None:
            self._begin()

    def _begin(self) -> None:
        texts = tuple(self.prompts or ())
        device = self.context.device
        work = self._prepare
        work = work if device.kind == "cpu" else on_this_stream(work, device)
        self._next = self.context.runtime.future(lambda dropped: work(texts))
        self._awaited = texts

    def _prepare(self, texts: Sequence[str]) -> Prompts:
        if not self._card.takes_prompts:
            return Prompts((), SharedInputs())
        return prepare(self._card, texts, self.context.device)

    def _switch(self) -> None:
        """Take the new prompts if they are ready."""
        if self._next is None or not self._next.ready:
            return
        upcoming = self._next
        self._next = None
        try:
            self._prompts = upcoming.result()
        except Exception as error:  # of the text encoder: the old prompts still work
            logger.error(f"{self.context.id}: the new prompts are not used: {describe(error)}")
        if self._awaited != tuple(self.prompts or ()):  # they have changed again meanwhile
            self._begin()

    def _load(
        self,
        sizes: Sequence[int],
        arithmetic: Arithmetic,
        *,
        quick: bool = False,
        dropped: Callable[[], bool] = lambda: False,
    ) -> Session:
        card = self._card
        session = Session(
            card.file,
            self.context.device,
            arithmetic=arithmetic,
            threads=self.threads or self.context.threads,
            quick=quick,
            batch_sizes=sizes,
            size=card.input.size,
            shared=self._prompts.shared,
            ignore_outputs=card.ignore_outputs,
            frames=self.window,
        )
        shapes = session.warm(sizes, card.input.size, dropped)
        if self._measures and not quick:
            self._measure(session)
        try:  # checked again on real outputs: a file may leave their shapes open
            self._family.check(shapes, len(self._prompts.texts or card.labels))
        except ValueError as error:
            raise wrong(card, str(error)) from None
        return session

    @property
    def _measures(self) -> bool:
        """Whether the rate of the network is measured: on a GPU, and not beside live sources."""
        return self.context.device.kind == "cuda" and (
            self.context.runtime.future.held or self.context.runtime.future.at_once
        )

    def _measure(self, session: Session) -> None:
        """Keep the rate of a tuned network for the next start, which plans processes with it."""
        card = self._card
        device = self.context.device
        file = rate_file(card.file, card.input.size, gpu_versions(device.index), session.arithmetic)
        batch = session.fixed_batch or self._sizes[-1]
        if session.is_warm(batch):
            write_rate(file, session.measure(batch, card.input.size))

    def _tune_if_sustained(self, due: _Sustained) -> None:
        """Count a batch of a size that is not tuned, and tune the other sizes if such batches keep coming."""
        if self._others is not None and self._others.ready:  # and has failed
            return
        self.context.counters.add(UNTUNED)
        if due.again(time.monotonic()) and self._others is None:
            self._others = self.context.runtime.future(on_this_stream(self._tune_others, self.context.device))

    def _tune_others(self, dropped: Callable[[], bool]) -> None:
        """Tune the other sizes; if that fails, their batches go on running as they did."""
        try:
            self._session.warm(self._sizes, self._card.input.size, dropped)
        except Exception as error:  # ONNX Runtime's exceptions have no common base but Exception
            logger.warning(
                f"{self.context.id}: batches of {', '.join(map(str, self._sizes[:-1]))} run slower than they could: "
                f"the network could not be tuned for them: {describe(error)}"
            )

    def _report(self) -> None:
        """Report what slows this network down."""
        session = self._session
        name = self._card.file.name
        if self._card.derived and self._card.note:
            logger.warning(f"{name}: {self._card.note}")
        if self._single_image:
            logger.warning(f"{name} takes one image at a time: its outputs list the objects of one image")
        elif session.fixed_batch is not None:
            logger.warning(
                f"{name} has a fixed batch size of {session.fixed_batch}: larger batches run in steps; export it with "
                "a dynamic batch size for more speed"
            )
        if session.fused_share:
            share = f"{session.fused_share:.1%} of its multiply-adds are fused"
            logger.info(f"{name} runs in {session.arithmetic}: {share}")
        elsewhere = {provider: n for provider, n in session.nodes.items() if provider.startswith("CPU")}
        if self.context.device.kind == "cuda" and elsewhere:
            count = sum(elsewhere.values())
            self.context.counters.add("network nodes on the cpu", count)
            if count > sum(session.nodes.values()) // 10:  # a few are arithmetic on shapes, which costs nothing
                logger.warning(f"{name}: {count} of its nodes run on the CPU, with copies between CPU and GPU")

        may_be_int8 = self.context.device.kind == "cuda" and self.engine != "tensorrt" and not session.fused_share
        if may_be_int8 and is_quantized(self._card.file):
            logger.warning(
                f"{name} is int8, which is for CPUs: ONNX Runtime's CUDA provider runs it slower than f16; make an f16 "
                "network from the float one with: streamkit models convert CARD --f16"
            )

    def process(self, batch: Batch) -> Batch:
        """Set `batch.outputs`; release the tensor."""
        if batch.tensor is None:
            raise ValueError("infer needs a tensor; put preprocess before it")
        if self._tuned is not None:
            if self._tuned.ready:
                self._session = self._tuned.result()
                self._tuned = None
            else:
                self.context.counters.add(UNTUNED)
        self._switch()
        prompts = self._prompts
        shared = {"shared": prompts.shared} if prompts.texts else {}
        tensor = batch.tensor
        shapes = self._shapes(batch)
        xp = batch.xp
        filled = self._filled(batch)
        lengths = [1] * filled if self._single_image else steps(len(tensor), self._sizes)
        if self._others_due is not None and self._tuned is None and not all(map(self._session.is_warm, lengths)):
            self._tune_if_sustained(self._others_due)

        geometry = batch.geometry
        labels = prompts.texts or self._card.labels

        def run(rows: Any) -> dict[str, Any]:
            extra = self._family.extra_inputs(shapes[rows], xp)
            written = isinstance(tensor, LazyRows) and tensor.can_be_written
            images = tensor.part(rows) if written else tensor[rows]
            feeds = {self._session.image_input: images, **extra}
            outputs = self._session.run(feeds, **shared)
            if self._finite is not None and self._finite.broken_by(outputs):
                self._go_on_in_f32()
            if self._trial is not None and self.context.counters is self._counters and self._trial.is_due():
                first = (rows.start or 0) if isinstance(rows, slice) else int(rows[0])
                count = min(len(feeds[self._session.image_input]), filled - first)
                of_run = None if geometry is None else geometry[rows][:count]
                images = Images(of_run, shapes[rows][:count], tuple(labels))
                return self._compared(outputs, lambda session: session.run(feeds, **shared), images, feeds)
            return outputs

        if batch.crops is not None and len(tensor) > self._sizes[-1] and not self._single_image:
            batch.outputs = LazyOutputs(run, lengths, len(batch.crops))
        else:
            ends = list(accumulate(lengths, initial=0))
            parts = [run(slice(begin, end)) for begin, end in pairwise(ends)]
            batch.outputs = stack_images(parts, xp) if self._single_image else _joined(parts, lengths, xp)
        batch.tensor = None
        batch.prompts = prompts.texts
        return batch

    def _compared(self, outputs: dict[str, Any], run: Run, images: Images, feeds: dict[str, Any]) -> dict[str, Any]:
        """Compare faster arithmetics on a run's images; return the outputs to go on with.

        Files take a decision of their first images, so that all of a run is computed alike; without one, they stay in
        f32, and later images decide for the next run. Cameras switch when there was enough to tell.
        """
        assert self._trial is not None
        files = self.context.runtime.future.held
        self._trial.compare(outputs, run, images, feeds)
        if self._trial.choice is None:
            if files and not self._stays:
                self._stays = True
                logger.warning(
                    f"{self._card.file.name} runs in {F32} in this run: {self._trial}. Later images decide for the "
                    "next run; set precision to choose yourself"
                )
            return outputs
        session = self._trial.session
        stays = self._stays
        self._trial = None
        if session is None or stays:
            return outputs
        self._unused = self._tuned
        self._tuned = None
        self._begin_with(session)
        self._report()
        return run(session)

    def _go_on_in_f32(self) -> None:
        """Leave an arithmetic in which values overflowed, in this run and in later ones."""
        card = self._card
        device = self.context.device
        self.context.counters.add(NOT_FINITE)
        if self._pinned != "auto":
            if not self._stays:
                logger.error(
                    f"{self.context.id}: {card.file.name} gave values that are not finite "
                    f"in {self._session.arithmetic}: its objects are lost in such frames; set precision: f32, or auto"
                )
            self._stays = True
            return
        reason = f"in {self._session.arithmetic}, it gave values that are not finite"
        logger.error(f"{self.context.id}: {card.file.name} goes on in {F32}: {reason}, and objects were lost")
        choice = ArithmeticChoice(F32.engine, F32.precision, reason)
        allowed = candidates(self.engine, self._pinned, device)
        replace_choice(choice_file(card.file, card.input.size, gpu_versions(device.index), allowed), choice)
        self._finite = None
        self._open_in(F32)

    def _filled(self, batch: Batch) -> int:
        """Return the number of rows of the tensor that are images, not padding."""
        if batch.crops is not None:
            return len(batch.crops)
        return len(batch) if batch.rows is None else len(batch.rows)

    def _shapes(self, batch: Batch) -> np.ndarray:
        """Return (rows of the tensor, 2) int64: width and height of each row's region; 1 for padding."""
        assert batch.tensor is not None
        shapes = np.ones((len(batch.tensor), 2), np.int64)
        if batch.crops is not None:
            shapes[: len(batch.crops)] = batch.crops.rects[:, 2:] - batch.crops.rects[:, :2]
        else:
            rows = range(len(batch)) if batch.rows is None else batch.rows.tolist()
            size_wh = [(batch.frames[row].width, batch.frames[row].height) for row in rows]
            shapes[: len(rows)] = np.array(size_wh, np.int64).reshape(-1, 2)
        return shapes

    def close(self) -> None:
        """Release the sessions."""
        for name in ("_tuned", "_unused", "_others", "_next"):
            if (future := self.__dict__.pop(name, None)) is not None:
                future.drop()
        for name in ("_session", "_trial"):
            self.__dict__.pop(name, None)


def _joined(parts: Sequence[dict[str, Any]], lengths: Sequence[int], xp: Any) -> dict[str, Any]:
    """Join the outputs of runs of these lengths; one without a row for each image is taken from the first run."""
    if len(parts) == 1:
        return parts[0]
    return {
        name: xp.concatenate([part[name] for part in parts]) if first.ndim and len(first) == lengths[0] else first
        for name, first in (parts[0].items() if parts else ())
    }


_INFER = ("engine", "precision", "threads")


def network_parts(
    stage: Any,
    select: list[CompositePart],
    results: list[CompositePart],
    shared: tuple[str, ...] = (),
    infer_options: tuple[str, ...] = (),
    few_rows: bool = False,
) -> list[CompositePart]:
    """Return the parts of a composite: `select`, then `preprocess` and `infer` with its options, then `results`.

    Args:
        stage: the composite, with the options of `infer`.
        select: the parts that choose what the network runs on.
        results: the parts that decode and apply the outputs.
        shared: further options of both `preprocess` and `infer`, such as `batch`.
        infer_options: further options of `infer`, such as `prompts`.
        few_rows: whether rows come few at a time, as the crops of tracks do.
    """
    both = {**pick_options(stage, ("model", *shared)), **({"few_rows": True} if few_rows else {})}
    return [
        *select,
        CompositePart("preprocess", Preprocess, both),
        CompositePart("infer", Infer, {**both, **pick_options(stage, (*_INFER, *infer_options))}),
        *results,
    ]


def pick_options(stage: Stage, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of these names."""
    return {name: getattr(stage, name) for name in names}


def check_task(stage: Any) -> None:
    """Check that the card's task is the stage's; raise ValueError."""
    task = stage.name
    card = stage.model
    if card.task != task:
        raise ValueError(
            f"{task} needs a card with task: {task}; "
            f"{card.name} has task: {card.task}, which the stage {card.task} runs"
        )
