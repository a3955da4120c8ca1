# SPDX-License-Identifier: Apache-2.0
"""Stages that draw, encode, stream, record and save images."""
