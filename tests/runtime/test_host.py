import sys

import cv2

from streamkit.runtime.host import settle


def test_opencv_starts_no_threads_and_pyav_is_loaded():
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(2)
        settle()
        assert cv2.getNumThreads() == 1
        assert "av" in sys.modules
    finally:
        cv2.setNumThreads(before)
