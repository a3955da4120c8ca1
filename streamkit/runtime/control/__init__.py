# SPDX-License-Identifier: Apache-2.0
"""Live changes: commands, reload, settings, and the state that survives a restart."""
