"""Without a timeline everything comes back as it was given."""

from streamkit.core.stage import Context
from streamkit.core.tracing import Spans


def test_nothing_is_wrapped():
    spans, items = Context().runtime.spans, [1, 2]
    assert type(spans) is Spans
    assert spans.call("a", len) is len
    assert spans.each("a", items) is items
    assert spans.stage("a", abs) is abs
    spans.close()
