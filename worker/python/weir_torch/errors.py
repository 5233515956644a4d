# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in the model's code, as one line."""
import os
import traceback


class Refused(Exception):
    """What the user can repair, in one line that names the part."""


def is_out_of_memory(error):
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "not enough memory" in str(error)


def one_line(error, folder=""):
    """RuntimeError: shapes differ (model.py:17): the innermost frame of the folder, else the innermost one of all."""
    if isinstance(error, Refused):
        return str(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if folder and os.path.dirname(os.path.abspath(frame.filename)) == folder] or frames
    return f"{text[:900]} ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else text[:900]
