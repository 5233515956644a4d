# SPDX-License-Identifier: Apache-2.0
"""Jobs whose workers are lost, seen from outside: how they begin, who has which place, how one is killed, and what the loss logs of the workers tell."""
import collections
import json
import threading
import time

import lab


def start(namespace, body, steps):
    """Applies a job whose workers log their losses to the claim `logs`, and waits until it has trained so many steps."""
    name, worker = body["metadata"]["name"], body["spec"]["worker"]
    worker["args"].append(f"--loss-log=/logs/{name}.$(WEIR_POD_NAME).json")
    worker["volumes"].append({"name": "logs", "persistentVolumeClaim": {"claimName": "logs"}})
    worker["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})
    lab.apply(body, namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"ppj/{name}", "--timeout=120s", timeout=130)
    lab.wait_until(f"{steps} steps", lambda: lab.reported_step(namespace, name) >= steps, 60)


def logged(folder, name):
    """({step: losses that the last stages tell}, steps that one worker has logged twice)."""
    found, twice = collections.defaultdict(set), []
    for path in folder.glob(f"{name}.*.json"):
        own = set()
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("loss") is None:
                continue
            if entry["step"] in own:
                twice.append(f"{path.name}: {entry['step']}")
            own.add(entry["step"])
            found[entry["step"]].add(entry["loss"])
    return found, twice


class Outage:
    """The longest time in which no worker of the job has logged a step; from the logs, so it is right to a tenth of a second."""
    def __init__(self, folder, name):
        self.folder, self.name, self.seconds, self.over = folder, name, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        def written():
            return sum(path.stat().st_size for path in self.folder.glob(f"{self.name}.*.json"))
        size, since = written(), time.monotonic()
        while not self.over.wait(0.05):
            self.seconds = max(self.seconds, time.monotonic() - since)
            if (now := written()) != size:
                size, since = now, time.monotonic()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def ranks(namespace, name):
    return {(r["replica"], r["stage"]): r["pod"] for r in lab.plan_document(namespace, lab.job(namespace, name))["ranks"]}


def kill(namespace, name, *places):
    def act():
        at = ranks(namespace, name)
        pods = [lab.get(f"/api/v1/namespaces/{namespace}/pods/{at[place]}") for place in places]
        # At once: after the first one alone the others would train on, and take snapshots.
        ends = [threading.Thread(target=lab.kill_container, args=(pod["spec"]["nodeName"], pod)) for pod in pods]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
    return act
