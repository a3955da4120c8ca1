# SPDX-License-Identifier: Apache-2.0
"""Images, events, live video and records for viewers: where they are made and kept, and their way between processes."""
