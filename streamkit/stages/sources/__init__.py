"""Stages that produce frames: video, images, test patterns."""
