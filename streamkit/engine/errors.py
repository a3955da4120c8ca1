# SPDX-License-Identifier: Apache-2.0
"""The error of the engine, apart from its programs: a machine without a GPU imports only this module."""


class EngineError(Exception):
    """The engine cannot run a network; the text says why."""
