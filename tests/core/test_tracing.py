"""Without a timeline everything comes back as it was given; operations are passed on only where they are recorded."""

from streamkit.core.stage import Context
from streamkit.core.tracing import Spans, record_operation, record_operations


def test_functions_are_not_wrapped_without_a_recorder():
    spans = Context().runtime.spans
    items = [1, 2]
    assert type(spans) is Spans
    assert spans.call("a", len) is len
    assert spans.each("a", items) is items
    assert spans.stage("a", abs) is abs
    spans.close()


def test_operations_are_sent_to_the_active_recorder():
    operations = []
    record_operation("connect", 1.0, {})
    record_operations(lambda *operation: operations.append(operation))
    try:
        record_operation("connect", 2.0, {"a": 1}, "no")
    finally:
        record_operations(None)
    record_operation("connect", 3.0, {})
    assert operations == [("connect", 2.0, {"a": 1}, "no")]
