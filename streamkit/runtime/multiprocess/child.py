# SPDX-License-Identifier: Apache-2.0
"""Main module of a child process: `python -m streamkit.runtime.multiprocess.child CONTROL ALIVE NAME`.

`Child` in `children.py` starts it. CONTROL is the descriptor of the pipe to the parent, ALIVE one that stays open until
the process exits.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

from streamkit.runtime.multiprocess.children import (
    ChildSetup,
    ParentConnection,
    ignore_signals,
    read_job,
    receive_setup,
)


def main(control: int, alive: int, name: str) -> None:
    """Read the job from the pipe and run it. Exit at once if the parent is gone."""
    faulthandler.enable()
    ignore_signals()
    for descriptor in (control, alive):
        os.set_inheritable(descriptor, False)  # a process that outlives this one must not hold them open
    multiprocessing.current_process().name = name
    with Connection(control) as connection:
        try:
            setup, descriptors = receive_setup(connection)
        except (EOFError, OSError):
            os._exit(1)
        _set_up(setup)
        ParentConnection(connection).run(_run, setup.job, descriptors)


def _set_up(setup: ChildSetup) -> None:
    multiprocessing.current_process().name = setup.name
    os.chdir(setup.folder)
    sys.path[:] = setup.path
    sys.argv[:] = setup.argv
    for name in os.environ.keys() - setup.variables.keys():
        del os.environ[name]
    os.environ.update(setup.variables)


def _run(link: ParentConnection, job: bytes, descriptors: list[int]) -> None:
    target, args = read_job(job, descriptors)
    target(link, *args)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
