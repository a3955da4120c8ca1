"""Draw number plates, and tracks of them: for training a reader, for its tests, and for the documentation.

The typeface is our own: strokes on a grid of 4 x 6, so that every version of OpenCV draws the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np

_STROKES = {
    "A": "062046 1434",
    "B": "06003041423303 3344453606",
    "C": "4130100105163645",
    "D": "06003041453606",
    "E": "40000646 0333",
    "F": "400006 0333",
    "G": "41301001051636454323",
    "H": "0006 4046 0343",
    "I": "1030 2026 1636",
    "J": "4045361605",
    "K": "0006 400346",
    "L": "000646",
    "M": "0600234046",
    "N": "06004640",
    "O": "103041453616050110",
    "P": "06003041423303",
    "Q": "103041453616050110 2446",
    "R": "06003041423303 2346",
    "S": "413010010213334445361605",
    "T": "0040 2026",
    "U": "000516364540",
    "V": "002640",
    "W": "0016223640",
    "X": "0046 4006",
    "Y": "002340 2326",
    "Z": "00400646",
    "0": "103041453616050110",
    "1": "112026",
    "2": "01103041420646",
    "3": "01103041423313 334445361605",
    "4": "36300444",
    "5": "400002324345361605",
    "6": "4130100105163645443303",
    "7": "004016",
    "8": "103041423313020110 1304051636454433",
    "9": "0516364541301001021343",
    "-": "1333",
}
"""Each stroke of a character as digits x, y, x, y, ...; x from 0 to 4 and y from 0, the top, to 6."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
_FINE = 8  # pixels of a unit of the grid
_NARROW = {"0": 0.8, "1": 0.7, "I": 0.8, "-": 0.7}  # width, as a share of a letter's


def draw_plate(
    text: str, *, stroke: float = 0.9, spacing: float = 1.6, background: int = 235, ink: int = 30, margin: float = 1.4
) -> np.ndarray:
    """Return a plate, (h, w) uint8, 74 pixels high.

    Args:
        text: capital letters, digits, `-` and spaces.
        stroke: thickness of the strokes in units of the grid.
        spacing: space between two characters, in the same units.
        background: gray level.
        ink: likewise, of text and border.
        margin: above and below the text, in the same units.
    """
    widths = [(2.0 if c == " " else 4.0 * _NARROW.get(c, 1.0)) for c in text]
    wide = sum(widths) + spacing * (len(text) - 1) + 3 * margin
    plate = np.full((round((6 + 2.3 * margin) * _FINE), round(wide * _FINE)), background, np.uint8)
    cv2.rectangle(plate, (2, 2), (plate.shape[1] - 3, plate.shape[0] - 3), ink, 2)
    left = 1.5 * margin
    for character, width in zip(text, widths, strict=True):
        for digits in _STROKES.get(character, "").split():
            points = np.array(list(map(int, digits)), np.float64).reshape(-1, 2)
            place = np.rint((points * (width / 4, 1) + (left, 1.15 * margin)) * _FINE * 16).astype(np.int32)
            cv2.polylines(plate, [place], False, ink, max(1, round(stroke * _FINE)), cv2.LINE_AA, 4)
        left += width + spacing
    return plate


def random_text(rng: np.random.Generator, pattern: str = "A-AA 9999") -> str:
    """Return a text: `A` of the pattern becomes a letter and `9` a digit."""
    letter = {"A": LETTERS, "9": DIGITS}
    return "".join(str(rng.choice(list(letter[c]))) if c in letter else c for c in pattern)


@dataclass
class PlateTrack:
    """A plate that moves through a picture.

    Attributes:
        text: what it says.
        height: of the plate, in pixels.
        rng: for its path, and for blur and noise of each frame.
        size: width and height of the picture.
        corners: of the newest frame, (4, 2) in pixels, from the text's upper left one, clockwise.
        ends: (2, 2), the center of the plate at the start and the end of its way.
    """

    text: str
    height: float
    rng: np.random.Generator
    size: tuple[int, int] = (320, 160)
    corners: np.ndarray = field(init=False)
    ends: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng
        self._plate = draw_plate(
            self.text,
            stroke=rng.uniform(0.75, 1.1),
            background=int(rng.integers(190, 246)),
            ink=int(rng.integers(15, 60)),
        )
        ratio = self._plate.shape[1] / self._plate.shape[0]
        self._half = np.array([self.height * ratio, self.height]) / 2
        self._tilt = rng.uniform(-0.06, 0.06)
        self._lean = rng.uniform(-0.12, 0.12)
        self._near = rng.uniform(-0.06, 0.06)
        room = (np.array(self.size) / 2 - self._half).clip(2)
        self.ends = np.array(self.size) / 2 + rng.uniform(-0.7, 0.7, (2, 2)) * room
        self._ground = cv2.resize(rng.integers(40, 190, (6, 10), np.uint8), self.size, interpolation=cv2.INTER_CUBIC)

    def frame(self, share: float) -> np.ndarray:
        """Return the picture at this share of the track, (h, w) uint8, with its own blur and noise; set `corners`."""
        rng = self.rng
        unit = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float64)
        cos = np.cos(self._tilt)
        sin = np.sin(self._tilt)
        shape = unit * self._half
        shape[:, 1] *= 1 + self._near * unit[:, 0]
        shape[:, 0] += self._lean * shape[:, 1]
        center = self.ends[0] + (self.ends[1] - self.ends[0]) * share
        self.corners = shape @ np.array([[cos, sin], [-sin, cos]]) + center
        over = 4  # drawn finer and averaged, as a sensor does
        high, wide = self._plate.shape
        from_plate = np.array([[0, 0], [wide, 0], [wide, high], [0, high]], np.float32) - 0.5
        to = (self.corners * over - 0.5).astype(np.float32)
        matrix = cv2.getPerspectiveTransform(from_plate, to)
        fine = cv2.resize(self._ground, None, fx=over, fy=over, interpolation=cv2.INTER_LINEAR)
        source = cv2.GaussianBlur(self._plate, (0, 0), max(0.3, 0.4 * high / (self.height * over)))
        cv2.warpPerspective(
            source, matrix, (fine.shape[1], fine.shape[0]), fine, cv2.INTER_LINEAR, cv2.BORDER_TRANSPARENT
        )
        blur = rng.uniform(0.2, 0.85) + (rng.uniform(0.4, 1.0) if rng.random() < 0.25 else 0.0)
        fine = cv2.GaussianBlur(fine, (0, 0), blur * over)
        seen = cv2.resize(fine, self.size, interpolation=cv2.INTER_AREA).astype(np.float32)
        light = rng.uniform(0.75, 1.05)
        return (seen * light + rng.normal(0, rng.uniform(3, 9), seen.shape)).clip(0, 255).astype(np.uint8)
