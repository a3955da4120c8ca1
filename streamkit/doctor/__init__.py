# SPDX-License-Identifier: Apache-2.0
"""`streamkit doctor`: what this machine supports, and how to fix problems."""
