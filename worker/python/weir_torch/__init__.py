# SPDX-License-Identifier: Apache-2.0
"""Weir's Python tools. Importing the package imports neither torch nor any other package."""
