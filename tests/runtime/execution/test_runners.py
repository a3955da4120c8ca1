"""The runner of each kind of stage."""

from support.one_stage import Numbers, OneEach, Picky, Rig, Writer, batch

from streamkit.core.data import Frame, FrameState


def test_every_kind_of_stage_knows_itself_and_its_counters_on_each_frame():
    for kind, options in ((Picky, {}), (Numbers, {"log": []}), (OneEach, {"log": []}), (Writer, {"log": []})):
        rig = Rig(kind, **options)
        input_batch = batch("a0")
        input_batch.failed = [Frame("a", 1, 0.0, 64, 48, error="bad", _state=FrameState(position=1))]
        rig(input_batch)
        for frame in input_batch.frames + (input_batch.failed if kind is Writer else []):
            assert frame._state.stage == "it"
            assert frame._state.counters is rig.runner.counters
