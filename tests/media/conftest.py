"""Makes `clips` importable from the tests beside it, which live in no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
