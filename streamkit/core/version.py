# SPDX-License-Identifier: Apache-2.0
"""The version of the package, and where its repository is."""

__version__ = "0.1.0"
REPOSITORY = "https://repository.invalid/streamkit"
"""The repository's address, from which those on the package index follow; a release of a placeholder is refused."""
