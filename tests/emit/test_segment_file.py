from hypothesis import given
from hypothesis import strategies as st

from streamkit.emit.segment_file import HEADER_BYTES, SpoolRecord, block_bytes, pack, unpack

RECORDS = st.lists(
    st.builds(SpoolRecord, st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=40)), min_size=1
)


@given(RECORDS, RECORDS, st.integers(1, 2**60))
def test_unpacking_inverts_packing(first_block, second_block, first):
    data = pack(first_block, first, 1.5) + pack(second_block, first + len(first_block), 2.5)
    records, done = unpack(data, first)
    assert done == len(data)
    assert [record[2:] for record in records] == [*first_block, *second_block]
    assert [record.number for record in records] == list(range(first, first + len(first_block) + len(second_block)))
    assert [record.time_s for record in records] == [1.5] * len(first_block) + [2.5] * len(second_block)
    assert block_bytes(data[:HEADER_BYTES]) == len(pack(first_block, first, 1.5))


@given(RECORDS, st.data())
def test_a_truncated_or_changed_block_is_invalid(records, data):
    whole = pack(records, 1, 0.0)
    torn = pack(records, 1 + len(records), 0.0)
    cut = data.draw(st.integers(0, len(torn) - 1))
    assert unpack(whole + torn[:cut], 1)[1] == len(whole)
    flipped = bytearray(torn)
    flipped[data.draw(st.integers(0, len(torn) - 1))] ^= 1
    assert unpack(whole + bytes(flipped), 1)[1] == len(whole)


def test_a_gap_in_the_numbers_ends_the_reading():
    data = pack([SpoolRecord(b"a", b"", b"{}")], 7, 0.0)
    assert unpack(data, 8) == ([], 0)
