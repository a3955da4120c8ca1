"""The forms of output that are tried, as words: a family, and for `detr` which of its raw outputs."""

from streamkit.models.families import Family, family

_SELECTS = {"detr best": "best_class", "detr softmax": "softmax"}


def reader_of(form: str) -> Family:
    """What reads outputs of this form."""
    return family(form.split()[0]).selecting(_SELECTS.get(form, ""))
