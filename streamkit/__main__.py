# SPDX-License-Identifier: Apache-2.0
"""`python -m streamkit`: the same as the command `streamkit`."""

from streamkit.cli import main

if __name__ == "__main__":
    main()
