# SPDX-License-Identifier: Apache-2.0
"""The dashboards as tests see them: their panels, their queries with Grafana's variables replaced, and which panels may be empty."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATHS = sorted((ROOT / "dashboards").glob("*.json"))

# Panels that are empty without something, which their noValue names. All others have data for every job that has done a step.
EMPTY_WITHOUT = {
    # A link has a usual bandwidth after five minutes.
    "usual": {"Slowest link now", "Bandwidth of links against usual", "Ten slowest links of all jobs, against usual"},
    # Measured and judged by the operator; no single step exists with sync.mode Partial.
    "bound": {"Where a step goes", "Above the bound", "How far from the bound", "Farthest above the bound: ten jobs"},
    "checkpoint": {"Steps since a checkpoint", "Time of a save"},
    "replicas": {"Own time of a step: the ten slowest replicas", "Waiting for other replicas", "Rounds per second", "Ahead of the slowest replica",
                 "Bandwidth to other replicas: the ten slowest", "Micro-batches of a step"},
    "partial": {"Replicas in an average"},
    "nccl": {"Time in NCCL"},
    "change": {"Changes", "Changes of plans"},
    "restart": {"Restarts by cause"},
    "relist": {"Lists after the first one"},
    "failed query": {"Failed queries"},
}


def load(path):
    return json.loads(path.read_text())


def panels(dashboard):
    """All panels but rows; those of collapsed rows, too."""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", [])


def rows(dashboard):
    """(row, its panels): those inside a collapsed row, or those that follow an open one."""
    found = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            found.append((panel, list(panel["panels"])))
        else:
            found[-1][1].append(panel)
    return found


def concrete(expression, namespace="team-a", job="gpt", stage="0", window="1m", interval="15s", since="1h"):
    """A query as Grafana sends it."""
    for variable, value in (("$__rate_interval", window), ("$__interval", interval), ("$__range", since), ("$namespace", namespace),
                            ("$pipelinejob", job),
                            ("$stage", stage)):
        expression = expression.replace(variable, value)
    return expression


def empty_panels(ask, has, **variables):
    """What a live Prometheus has no data for: texts. ask(query): its result as (labels, value); has: what is there of EMPTY_WITHOUT.

    A panel with NaN or Inf counts, too. Of a panel with several queries each must have data, unless the panel may be empty.
    """
    lacking = [panel for reason, names in EMPTY_WITHOUT.items() if reason not in has for panel in names]
    told = []
    for path in PATHS:
        for panel in panels(load(path)):
            for target in panel["targets"]:
                answer = ask(concrete(target["expr"], **variables))
                where = f"{path.name}: {panel['title']}: {target['expr']}"
                if not answer and panel["title"] not in lacking and not may_lack(panel, target):
                    told.append(f"no data: {where}")
                if any(value != value or abs(value) == float("inf") for _, value in answer):
                    told.append(f"no number: {where}")
    return told


def may_lack(panel, target):
    """A column of a table, a second number or curve: gains come with the second plan, gradients of weights with split backwards, losses of validations with them."""
    return target["refId"] != "A"
