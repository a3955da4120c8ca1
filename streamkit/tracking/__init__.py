"""Tracks: which objects of one frame are those of the frame before.

    settings  what is asked for, as numbers      pool    the state of all sources' tracks in flat arrays
    kalman    where a track is expected          assign  which pairs to take, the best in sum
    likeness  how well an object fits a track    step    one frame of one source: match, lose, begin
    advance   a batch: every frame in turn, in one call without the interpreter lock

All but `settings` and `pool` is compiled by Numba when it is first called, and kept on disk. Times are presentation
times in seconds and scale every motion and patience, so that a change of frame rate changes nothing.
"""
