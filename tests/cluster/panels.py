# SPDX-License-Identifier: Apache-2.0
"""Do the dashboards show something of a live job? Every query of every panel is asked of the cluster's Prometheus."""
import pathlib
import sys

import lab

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dashboards"))
import boards  # noqa: E402


def check_panels(namespace, job, *has, window="15s"):
    """Fails with the panels that have no data, or NaN. has: what the job has of boards.EMPTY_WITHOUT."""
    asked = []

    def ask(query):
        asked.append(query)
        return lab.prometheus(query)
    told = boards.empty_panels(ask, has, namespace=namespace, job=job, window=window, since="10m")
    lab.check(not told, "; ".join(told))
    return f"{len(asked)} queries"
