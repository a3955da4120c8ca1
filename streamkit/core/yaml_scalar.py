"""Plain scalars of YAML, typed by the core rules of YAML 1.2."""

from __future__ import annotations

import re
from typing import Any

from streamkit.core.errors import ConfigError

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}  # fmt: skip
_LONGEST = 1000


def scalar(text: str) -> Any:
    """Type a plain scalar by YAML 1.2's core schema (YAML 1.2.2, section 10.3.2).

    Raises:
        ConfigError: a whole number has more digits than Python reads and writes (`sys.get_int_max_str_digits`).
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > _LONGEST:
            raise ConfigError(f"a number has at most {_LONGEST} digits, got {len(text)}; put quotes around text")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
