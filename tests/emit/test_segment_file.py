from hypothesis import given
from hypothesis import strategies as st

from streamkit.emit.segment_file import HEADER_BYTES, SpoolRecord, block_bytes, pack, unpack

RECORDS = st.lists(
    st.builds(SpoolRecord, st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=40)), min_size=1
)


@given(RECORDS, RECORDS, st.integers(1, 2**60))
def test_what_is_packed_is_unpacked(one, two, first):
    data = pack(one, first, 1.5) + pack(two, first + len(one), 2.5)
    found, done = unpack(data, first)
    assert done == len(data)
    assert [kept[2:] for kept in found] == [*one, *two]
    assert [kept.number for kept in found] == list(range(first, first + len(one) + len(two)))
    assert [kept.time_s for kept in found] == [1.5] * len(one) + [2.5] * len(two)
    assert block_bytes(data[:HEADER_BYTES]) == len(pack(one, first, 1.5))


@given(RECORDS, st.data())
def test_a_block_that_is_cut_off_or_changed_anywhere_is_no_block(records, data):
    whole, torn = pack(records, 1, 0.0), pack(records, 1 + len(records), 0.0)
    cut = data.draw(st.integers(0, len(torn) - 1))
    assert unpack(whole + torn[:cut], 1)[1] == len(whole)
    flipped = bytearray(torn)
    flipped[data.draw(st.integers(0, len(torn) - 1))] ^= 1
    assert unpack(whole + bytes(flipped), 1)[1] == len(whole)


def test_numbers_that_do_not_follow_end_the_reading():
    data = pack([SpoolRecord(b"a", b"", b"{}")], 7, 0.0)
    assert unpack(data, 8) == ([], 0)
