# SPDX-License-Identifier: Apache-2.0
"""`ask`: questions about objects to a vision-language model behind an OpenAI-compatible endpoint."""
