# SPDX-License-Identifier: Apache-2.0
"""The routes of the API, one module for each topic."""
