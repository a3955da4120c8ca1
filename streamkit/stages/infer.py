"""Runs the network."""

from __future__ import annotations

from typing import Literal

import numpy as np

from streamkit.data import Batch
from streamkit.stage import BatchStage, Count, stage
from streamkit.units import Model


@stage("infer", reads="tensor", writes="outputs")
class Infer(BatchStage):
    """Run an ONNX network on the batch's tensor.

    Inputs and outputs stay on the pipeline's device. Each provider asked for must load: there is no silent fallback.

    Options:
        model: the card of the network.
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each batch size; faster for small networks, not possible for all.
    """

    model: Model
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def open(self) -> None:
        """Load the network and run every batch size once."""
        from streamkit.models.families import family
        from streamkit.models.network import check_model, wrong
        from streamkit.models.session import Session

        card = check_model(self.model)
        self._family = family(card.family)
        self._session = Session(
            card.file,
            self.context.device,
            providers=self.providers,
            threads=self.threads or self.context.threads,
            cuda_graph=self.cuda_graph,
        )
        if self._session.fixed_batch is not None:
            self.context.say(
                f"{card.file.name} takes {self._session.fixed_batch} picture(s) a run and no other number: larger "
                "batches go through it in steps; export it with a dynamic batch for more speed"
            )
        elsewhere = {name: n for name, n in self._session.nodes.items() if name.startswith("CPU")}
        if self.context.device.kind == "cuda" and elsewhere:
            count = sum(elsewhere.values())
            self.context.counters.add("network nodes on the cpu", count)
            if count > sum(self._session.nodes.values()) // 10:  # a few are arithmetic on shapes, which costs nothing
                self.context.say(f"{card.file.name}: {count} of its nodes run on the CPU, with copies there and back")
        shapes = self._session.warm(self.context.batch_sizes, card.input.size)
        try:  # once more on what comes out: a file may leave the shapes of its outputs open
            self._family.check(shapes, len(card.labels))
        except ValueError as error:
            raise wrong(card, str(error)) from None

    def process(self, batch: Batch) -> Batch:
        """Set `batch.outputs`; the tensor is let go."""
        if batch.tensor is None:
            raise ValueError("infer needs a tensor; put preprocess before it")
        sizes = np.ones((len(batch.tensor), 2), np.int64)
        sizes[: len(batch)] = [(frame.width, frame.height) for frame in batch.frames]
        feeds = {
            self._session.image_input: batch.tensor,
            **self._family.extra_inputs(sizes, batch.xp),
        }
        batch.outputs = self._session.run(feeds)
        batch.tensor = None
        return batch

    def close(self) -> None:
        """Let go of the network."""
        self.__dict__.pop("_session", None)
