# SPDX-License-Identifier: Apache-2.0
"""The command of streamkit: `python run.py pipeline.yaml`; `python run.py --help` says the rest."""

try:
    import os
    import signal

    if __name__ == "__main__":
        # nothing has begun while Python imports, so Ctrl-C ends it there and then, without a word
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))

        from streamkit.cli import main

        main()
except KeyboardInterrupt:  # in the first of these imports
    raise SystemExit(130) from None
