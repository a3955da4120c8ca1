# SPDX-License-Identifier: Apache-2.0
"""Multi-object tracking: which objects of one frame are those of the previous frame.

    tracker      the contract of trackers             methods       built-in methods by name
    plugin       methods of plugins                   compiled_tracker  runs the built-in methods

    settings     options as numbers                   track_state   state of all sources' tracks in flat arrays
    kalman       expected position of a track         steady        the boxes that `smooth` outputs
    similarity   how well an object fits a track      assign        assignment with the greatest total gain
    association  one round of matching                update_frame  one frame of one source
    update_batch all frames of a batch in one call without the GIL

The modules from `kalman` on are compiled by Numba on first use and cached on disk. Times are presentation times in
seconds and scale all motion and durations, so results do not depend on the frame rate.
"""
