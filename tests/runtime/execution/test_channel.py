"""Channels and outlets: bounded, in order whoever comes first, closed once, and never stuck when given up."""

import contextlib
import random
import threading
import time

import pytest
from support.batches import in_thread

from streamkit.core.data import Batch, Event, Frame
from streamkit.runtime.execution.channel import Aborted, Channel, Outlet
from streamkit.testing.kit import detections


def batch(sequence: int) -> Batch:
    return Batch([Frame("a", sequence, 0.0, 64, 48)], sequence=sequence)


def drain(channel: Channel) -> list[Batch]:
    batches = []
    while (item := channel.get()) is not None:
        batches.append(item)
    return batches


def test_items_are_read_in_order_up_to_the_last():
    channel = Channel(4)
    for sequence in range(3):
        channel.put(batch(sequence))
    channel.close()
    assert [drained_batch.sequence for drained_batch in drain(channel)] == [0, 1, 2]
    assert channel.get() is None


def test_a_full_channel_blocks_the_writer():
    channel = Channel(2)
    done: list[int] = []

    def write() -> None:
        for sequence in range(3):
            channel.put(batch(sequence))
            done.append(sequence)

    thread = in_thread(write)
    time.sleep(0.05)
    assert done == [0, 1]
    assert channel.get().sequence == 0
    thread.join(5)
    assert done == [0, 1, 2]


def test_close_wakes_the_reader():
    channel = Channel(2)
    received = []
    thread = in_thread(lambda: received.append(channel.get()))
    time.sleep(0.02)
    assert thread.is_alive()
    channel.close()
    thread.join(5)
    assert received == [None]


def test_abort_wakes_reader_and_writer_and_drops_queued_items():
    empty = Channel(1)
    full = Channel(1)
    raised = []
    full.put(batch(0))

    def expect(call) -> None:
        try:
            call()
        except Aborted:
            raised.append(True)

    threads = [in_thread(lambda: expect(empty.get)), in_thread(lambda: expect(lambda: full.put(batch(1))))]
    time.sleep(0.05)
    assert all(thread.is_alive() for thread in threads)
    empty.abort()
    full.abort()
    for thread in threads:
        thread.join(5)
    assert raised == [True, True]
    with pytest.raises(Aborted):
        full.get()


def test_the_order_is_restored_as_soon_as_possible():
    reader = Channel(10)
    outlet = Outlet([reader], workers=2)
    outlet.put(batch(2))
    outlet.put(batch(1))
    assert not reader._items
    outlet.put(batch(0))
    assert [waiting_batch.sequence for waiting_batch in reader._items] == [0, 1, 2]
    outlet.put(batch(3))
    outlet.close()
    outlet.close()
    assert [drained_batch.sequence for drained_batch in drain(reader)] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_workers_of_random_speed_deliver_batches_in_order(seed):
    first = Channel(2)
    second = Channel(3)
    outlet = Outlet([first, second], workers=4)
    left = iter(range(120))
    lock = threading.Lock()

    def work(generator: random.Random) -> None:
        while True:
            with lock:
                sequence = next(left, None)
            if sequence is None:
                break
            time.sleep(generator.random() * 0.002)
            outlet.put(batch(sequence))
        outlet.close()

    for number in range(4):
        in_thread(lambda n=number: work(random.Random(seed * 10 + n)))
    sequences: list[list[int]] = [[], []]
    readers = [
        in_thread(lambda c=channel, f=f: f.extend(drained_batch.sequence for drained_batch in drain(c)))
        for channel, f in zip([first, second], sequences, strict=True)
    ]
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive()
    assert sequences == [list(range(120))] * 2


def test_aborting_a_reader_wakes_the_waiting_worker():
    reader = Channel(1)
    raised = []
    outlet = Outlet([reader], workers=1)
    outlet.put(batch(0))

    def put() -> None:
        try:
            outlet.put(batch(1))
        except Aborted:
            raised.append(True)

    thread = in_thread(put)
    time.sleep(0.02)
    reader.abort()
    thread.join(5)
    assert raised == [True]
    outlet.close()  # does not wait for the lock


def test_branches_do_not_see_each_others_changes():
    channels = [Channel(1) for _ in range(3)]
    input_batch = batch(0)
    input_batch.tables["detect"] = detections([[0, 0, 4, 4]])
    input_batch.frames[0].tables["detect"] = input_batch.table("detect")
    input_batch.failed = [Frame("a", 9, 0.0, 64, 48, error="bad")]
    input_batch.outputs["scores"] = detections([[0, 0, 4, 4]]).score
    Outlet(channels, workers=1).put(input_batch)
    first, *others = (channel.get() for channel in channels)
    assert first is input_batch  # the first reader's is not copied
    before = first.frames[0].surface
    first.frames[0].events.append(Event("moved", "s", "a", 0, 0.0))
    first.frames[0].surface = object()
    first.frames[0].error = "broken"
    first.frames[0].tables.clear()
    first.tables.clear()
    first.outputs.clear()
    first.failed[0].events.append(Event("moved", "s", "a", 9, 0.0))
    first.failed.clear()
    first.frames.clear()
    for other in others:
        (frame,) = other.frames
        assert (frame.events, frame.error, frame.surface) == ([], None, before)
        assert list(frame.tables) == list(other.tables) == ["detect"]
        assert list(other.outputs) == ["scores"]
        assert [(lost.index, lost.events) for lost in other.failed] == [(9, [])]
    assert others[0].frames[0] is not others[1].frames[0]
    assert others[0].table("detect") is others[1].table("detect")  # what nobody changes is not copied


def test_a_worker_waits_if_too_far_ahead_of_a_slow_one() -> None:
    channel = Channel(100)
    outlet = Outlet([channel], 1)
    done: list[int] = []

    def ahead() -> None:
        for number in range(1, 9):
            outlet.put(Batch([], sequence=number))
            done.append(number)

    thread = threading.Thread(target=ahead, daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert done == [1, 2, 3, 4]
    outlet.put(Batch([], sequence=0))
    thread.join(5)
    assert [taken.sequence for taken in (channel.get() for _ in range(9)) if taken is not None] == list(range(9))


def test_abort_wakes_a_worker_that_waits_for_its_turn() -> None:
    outlet = Outlet([Channel(100)], 1)
    for number in range(1, 5):
        outlet.put(Batch([], sequence=number))
    threading.Timer(0.1, outlet.abort).start()
    with pytest.raises(Aborted):
        outlet.put(Batch([], sequence=9))


def test_free_capacity_of_an_empty_channel_means_a_waiting_reader():
    """A batch of live frames is made when somebody takes it at once: until then newer frames may go into it."""
    channel = Channel(4, sole=True)
    passed = []
    outlet = Outlet([channel], 1)

    def ask(empty: bool) -> threading.Thread:
        def wait() -> None:
            with contextlib.suppress(Aborted):
                outlet.wait_for_room(empty)
                passed.append(empty)

        return in_thread(wait)

    ask(False).join(5)
    assert passed == [False]
    waiting = ask(True)
    waiting.join(0.1)
    assert waiting.is_alive()  # nothing is queued, and nobody waits for it
    taken = []
    reader = threading.Thread(target=lambda: taken.append(channel.get()), daemon=True)
    reader.start()
    waiting.join(5)
    assert passed == [False, True]
    channel.put(batch(0))
    reader.join(5)
    assert [taken_batch.sequence for taken_batch in taken] == [0]
    again = ask(True)
    again.join(0.1)
    assert again.is_alive()  # it is at work
    channel.abort()
    again.join(5)
    assert not again.is_alive()


@pytest.mark.parametrize("sole", [True, False])
def test_a_slow_reader_delays_others_only_briefly(sole):
    """With several, or one that reads other channels too, an empty queue is enough."""
    readers = [Channel(4, sole=sole) for _ in range(2 if sole else 1)]
    outlet = Outlet(readers, 1)
    outlet.wait_for_room(True)
    readers[-1].put(batch(0))
    waiting = threading.Thread(target=lambda: outlet.wait_for_room(True), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert readers[-1].get().sequence == 0
    waiting.join(5)
    assert not waiting.is_alive()


def test_as_many_batches_are_released_as_readers_wait():
    channel = Channel(4, sole=True)
    threads = [threading.Thread(target=channel.get, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    Outlet([channel], 1).wait_for_room(True)
    channel.put(batch(0))
    Outlet([channel], 1).wait_for_room(True)
    channel.put(batch(1))
    for thread in threads:
        thread.join(5)
    channel.abort()
    with pytest.raises(Aborted):
        channel.wait_for_room()


def ends_soon(target) -> bool:
    """Whether a call returns; on a thread, so that one that waits forever does not hold up the tests."""
    thread = in_thread(target)
    thread.join(5)
    return not thread.is_alive()


def waits(target) -> threading.Thread:
    """Start a call that is to wait, and see that it does."""
    thread = in_thread(target)
    thread.join(0.03)
    assert thread.is_alive()
    return thread


def test_a_push_drops_the_oldest_only_if_the_channel_is_full():
    channel = Channel(2)
    assert [channel.push(number) for number in range(4)] == [False, False, True, True]
    assert channel.get_many(9) == [2, 3]
    assert channel.push(4) is False


def test_a_channel_has_room_until_it_is_full():
    channel = Channel(2)
    assert ends_soon(channel.wait_for_room)
    channel.put(0)
    assert ends_soon(channel.wait_for_room)
    assert ends_soon(Outlet([channel], 1).wait_for_room)
    channel.put(1)
    waiting = waits(channel.wait_for_room)
    assert channel.get() == 0
    waiting.join(5)
    assert not waiting.is_alive()


def test_an_error_comes_after_the_last_item():
    channel = Channel(4)
    channel.put(0)
    channel.put(1)
    channel.close(OSError("broken"))
    assert channel.get() == 0
    assert channel.get_many(5) == [1]
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            channel.get()


def test_a_waiting_reader_gets_the_next_item_at_once():
    channel = Channel(4, sole=True)
    for number in range(3):
        taken = []
        reader = waits(lambda received=taken: received.append(channel.get()))
        assert ends_soon(lambda: Outlet([channel], 1).wait_for_room(True))
        channel.put(number)
        reader.join(5)
        assert taken == [number]

    def ask() -> None:
        with contextlib.suppress(Aborted):
            channel.wait_for_room(taken=True)

    waiting = waits(ask)  # the reader is at work
    channel.abort()
    waiting.join(5)
    assert not waiting.is_alive()


def test_readers_wait_until_every_worker_is_done():
    reader = Channel(2)
    drained = []
    outlet = Outlet([reader], workers=3)
    outlet.close()
    waiting = waits(lambda: drained.extend(drain(reader)))
    outlet.close()
    waiting.join(0.03)
    assert waiting.is_alive()
    outlet.put(batch(0))
    outlet.close()
    waiting.join(5)
    assert [drained_batch.sequence for drained_batch in drained] == [0]


# ----------------------------------------------------------------------------------------------------------- conditions
