# SPDX-License-Identifier: Apache-2.0
"""Do the dashboards show something of a live job? Every query of every panel is asked of the cluster's Prometheus."""
import pathlib
import sys
import time

import lab

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dashboards"))
import boards  # noqa: E402


PATIENCE = 60   # seconds: on a busy machine whole messages lie ready when they are read, so for a window there may be no rate of a link


def check_panels(namespace, job, *has, window="15s"):
    """Fails with the panels that have no data, or NaN. has: what the job has of boards.EMPTY_WITHOUT."""
    asked = []
    deadline = time.monotonic() + PATIENCE

    def ask(query):
        asked.append(query)
        return lab.prometheus(query)
    while (told := boards.empty_panels(ask, has, namespace=namespace, job=job, window=window, since="10m")) and time.monotonic() < deadline:
        time.sleep(5)
    lab.check(not told, "; ".join(told))
    return f"{len(asked)} queries"
