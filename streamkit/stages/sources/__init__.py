# SPDX-License-Identifier: Apache-2.0
"""Stages that produce frames: video, images, test patterns."""
