# SPDX-License-Identifier: Apache-2.0
"""Families of networks that take clips, several frames of a video at once, and tell classes of actions."""

from __future__ import annotations

from streamkit.models.facts import CardFacts
from streamkit.models.families.base import FamilyTraits, OutputFormat, network_family
from streamkit.models.families.vectors import Logits, Probabilities


def _pytorchvideo() -> CardFacts:
    """Return the input of PyTorchVideo's networks; of the others, files beside the network tell it."""
    line = "PyTorchVideo: the authors' input"
    facts = CardFacts()
    facts.add(line, input_resize="crop", input_color="rgb", input_scale="1/255")
    facts.add(line, input_mean=0.45, input_std=0.225)
    return facts


@network_family(
    "clip_logits",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, C)",
                "a value for each action, before the softmax; the input is a clip. VideoMAE of transformers 5.24",
            ),
        ),
        plausible=Logits.traits.plausible,
        doubt=Logits.traits.doubt,
        reference=Logits.traits.reference,
        hugging_face="VideoClassification",
    ),
)
class ClipLogits(Logits):
    """(N, C) for clips, without a final softmax: VideoMAE, TimeSformer, ViViT."""

    task = "action"
    takes_clips = True


@network_family(
    "clip_probabilities",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, C)", "a value for each action, after the softmax; the input is a clip. X3D of PyTorchVideo 0.1.5"
            ),
        ),
        line=_pytorchvideo(),
        plausible=Probabilities.traits.plausible,
        doubt=Probabilities.traits.doubt,
        reference=Probabilities.traits.reference,
    ),
)
class ClipProbabilities(Probabilities):
    """(N, C) for clips, after a softmax: X3D and SlowFast's single-pathway networks of PyTorchVideo."""

    task = "action"
    takes_clips = True
