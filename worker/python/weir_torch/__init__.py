# SPDX-License-Identifier: Apache-2.0
"""Weir's Python tools: weir-torch and weir-tokens. Importing the package imports neither torch nor any other package."""
from weir_torch.later import later

__all__ = ["later"]
__version__ = "0.1.0"
