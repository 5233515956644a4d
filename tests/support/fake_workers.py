# SPDX-License-Identifier: Apache-2.0
"""Plays kubelet, scheduler and workers of the jobs of one namespace: binds pods to nodes, sets them Running, and speaks the
control API as coordinators do (join, register, plan, report). It talks to the API server directly, not through a proxy, so it
also sees what really happened: every pod that ever was.

    workers = Workers(plane, namespace, lambda: operator.control)
    workers.run(job_script)   # in a thread
"""
import http.client
import json
import ssl
import threading
import time

import lab
from control_plane import ApiError

NODES = ("n0", "n1", "n2", "n3")
LAYERS = 8


def make_nodes(plane, names=NODES):
    for name in names:
        plane.api("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                                            "status": {"capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"}}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
        plane.api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready], "nodeInfo": node_info()}}, "application/merge-patch+json")


def node_info():
    """Of a kubelet that starts containers again in their pods."""
    names = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeProxyVersion", "operatingSystem", "architecture")
    return {**dict.fromkeys(names, ""), "kubeletVersion": "v1.35.4"}


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def job_of(name, count=4, labels=None, **spec):
    return {"apiVersion": "weir.dev/v1alpha1", "kind": "PipelineJob", "metadata": {"name": name, "labels": labels or {}},
            "spec": {"worker": {"image": "example.com/worker:1", "args": ["--model=mlp"]}, "workerGroups": [{"name": "g", "count": count}],
                     "batch": {"globalBatchSize": 32, "microBatchSize": 4}, **spec}}


def profile():
    times = {"cpu": [{"samples": 4, "forward": 0.002, "backward": 0.004, "update": 0.0}]}
    return {"apiVersion": "weir.dev/profile/v1", "model": "mlp", "scaling": "proportional",
            "nodes": [{"id": f"l{i}", "parameterBytes": 1000, "outputBytesPerSample": 1000, "times": times} for i in range(LAYERS)]}


class Control:
    """The control API at a port of this machine, trusted by the bundle of <job>-control."""

    def __init__(self, port, ca, namespace, job):
        self.port, self.context = port, ssl.create_default_context(cadata=ca)
        self.base = f"/v1/namespaces/{namespace}/pipelinejobs/{job}"

    def __call__(self, method, call, token, body=None):
        """(code, decoded body, headers); code 0: no answer."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port(), context=self.context, timeout=15)
        try:
            return self.once(connection, method, call, token, body)
        except (OSError, http.client.HTTPException):
            return 0, {}, {}
        finally:
            connection.close()

    def once(self, connection, method, call, token, body):
        connection.request(method, self.base + call, None if body is None else json.dumps(body),
                           {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else {}, dict(answer.getheaders())


class Workers:
    """One job's pods and its coordinator; step() is one round of all of them."""

    def __init__(self, plane, namespace, job, control_port, total_steps=60, fail_at=20):
        self.plane, self.namespace, self.job, self.control_port = plane, namespace, job, control_port
        self.total_steps, self.fail_at = total_steps, fail_at
        self.seen = {}              # uid: name of every pod that ever was
        self.joined, self.tokens = set(), {}
        self.registered = None      # the members that were told
        self.have = self.applied = 0
        self.plans, self.steps, self.sequence = [], 0, 0
        self.failed = None          # uid of the pod that was made to fail
        self.restarts = {}          # of containers in their pods, by uid
        self.done = False
        self.codes = []             # answers of the control API that were no success

    # --- kubelet ------------------------------------------------------------------------------------------------------

    def pods(self):
        return self.plane.list(f"/api/v1/namespaces/{self.namespace}/pods", f"weir.dev/job-name={self.job}")

    def path(self, pod, sub=""):
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}{sub}"

    def run_pod(self, pod):
        index = int(pod["metadata"]["labels"]["weir.dev/worker-index"])
        if not pod["spec"].get("nodeName"):
            self.plane.api("POST", self.path(pod, "/binding"), {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": NODES[index % 4]}})
        conditions = [{"type": t, "status": "True", "lastTransitionTime": now()} for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
        address = f"127.1.{index // 250}.{index % 250 + 1}"   # indices of spares are high
        self.set_status(pod, {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now(), "conditions": conditions,
                              "containerStatuses": [self.trainer(pod, True, {"running": {"startedAt": now()}})]})

    def trainer(self, pod, ready, state):
        """Status of the container."""
        return {"name": "trainer", "ready": ready, "restartCount": self.restarts.get(pod["metadata"]["uid"], 0), "image": "x", "imageID": "x", "state": state}

    def end_pod(self, pod, code):
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": now(), "finishedAt": now()}
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}, {"type": "Ready", "status": "False", "lastTransitionTime": now()}]
        self.set_status(pod, {"phase": "Failed" if code else "Succeeded", "conditions": conditions,
                              "containerStatuses": [self.trainer(pod, False, {"terminated": ended})]})

    def set_status(self, pod, status):
        self.plane.api("PATCH", self.path(pod, "/status"), {"status": status}, "application/strategic-merge-patch+json")

    def step(self):
        """One round; True when the job's pods have all ended."""
        pods = self.pods()
        for pod in pods:
            self.seen[pod["metadata"]["uid"]] = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
                if "finalizers" in pod["metadata"] and pod["status"].get("phase") == "Running":
                    self.end_pod(pod, 143)   # its object stays
                    continue
                try:   # the kubelet's last word
                    self.plane.api("DELETE", self.path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
                except ApiError:
                    pass
            elif pod["status"].get("phase", "Pending") == "Pending" and not pod["spec"].get("schedulingGates"):
                self.run_pod(pod)
        running = [p for p in pods if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
        if not self.done:
            self.coordinate(sorted(running, key=lambda p: int(p["metadata"]["labels"]["weir.dev/worker-index"])))
        return self.done

    # --- workers ------------------------------------------------------------------------------------------------------

    def token(self, pod):
        uid = pod["metadata"]["uid"]
        if uid not in self.tokens:
            self.tokens[uid] = self.plane.pod_token(pod)
        return self.tokens[uid]

    def control(self):
        found = self.plane.api("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{self.job}-control", ok_missing=True)
        ca = (found or {}).get("data", {}).get("ca.crt")
        return Control(self.control_port, ca, self.namespace, self.job) if ca else None

    def ask(self, control, method, call, pod, body=None):
        code, answer, _ = control(method, call, self.token(pod), body)
        if code not in (200, 202, 304):
            self.codes.append((call.split("?")[0], code))
        return code, answer

    def coordinate(self, running):
        labels = [p["metadata"]["labels"] for p in running]
        if not running or labels[0]["weir.dev/worker-index"] != "0":
            return
        control = self.control()
        if control is None:
            return
        uid = labels[0]["weir.dev/job-uid"]
        for pod, label in zip(running, labels):
            if pod["metadata"]["uid"] not in self.joined:
                code, _ = self.ask(control, "POST", "/join", pod, {
                    "jobUid": uid, "pod": pod["metadata"]["name"], "podUid": pod["metadata"]["uid"], "workerIndex": int(label["weir.dev/worker-index"]),
                    "attempt": int(label["weir.dev/attempt"]), "protocol": {"min": 1, "max": 1}})
                if code == 200:
                    self.joined.add(pod["metadata"]["uid"])
        present = [p for p in running if p["metadata"]["uid"] in self.joined]
        wanted = int(next(e["value"] for e in running[0]["spec"]["containers"][0]["env"] if e["name"] == "WEIR_WORKERS"))
        if len(present) < wanted:
            return
        self.talk(control, uid, present)

    def talk(self, control, uid, pods):
        chief, members = pods[0], [p["metadata"]["uid"] for p in pods]
        if self.registered != members and not self.register(control, uid, pods):
            return
        code, plan = self.ask(control, "GET", f"/plan?have={self.have}&wait=0", chief)
        if code == 200 and plan["revision"] > self.have:
            self.have = plan["revision"]
            self.plans.append(plan)
        if not self.plans:
            self.tell(control, uid, pods)   # from registration on: a new leader wants the members again (428)
            return
        if {r["podUid"] for r in self.plans[-1]["ranks"]} - set(members):
            return   # a plan with a pod that is gone
        if self.applied != self.have:
            self.applied = self.have
        self.steps = min(self.steps + 4, self.total_steps)
        if self.fail_at and self.failed is None and self.steps >= self.fail_at:
            self.steps = self.fail_at
            if self.tell(control, uid, pods) == 202 and self.progress() >= 1:
                self.failed = pods[1]["metadata"]["uid"]
                self.end_pod(pods[1], 1)
            return
        code = self.tell(control, uid, pods)
        if code == 202 and self.steps >= self.total_steps and self.applied_in_status():
            for pod in reversed(pods):
                self.end_pod(pod, 0)
            self.done = True

    def register(self, control, uid, pods):
        members = [{"pod": p["metadata"]["name"], "podUid": p["metadata"]["uid"], "workerIndex": int(p["metadata"]["labels"]["weir.dev/worker-index"]),
                    "ips": [p["status"]["podIP"]], "node": p["spec"]["nodeName"], "ranks": [{"device": "cpu", "memoryBytes": 1 << 30}]} for p in pods]
        code, _ = self.ask(control, "POST", "/register", pods[0], {
            "jobUid": uid, "members": members, "model": {"name": "mlp", "layers": LAYERS, "digest": "sha256:0"}, "profile": profile()})
        if code == 202:
            self.registered, self.sequence = [p["metadata"]["uid"] for p in pods], 0
        return code == 202

    def tell(self, control, uid, pods):
        """A report; a leader that does not know the members gets them in the next round."""
        code = self.report(control, uid, pods)
        if code == 428:
            self.registered = None
        return code

    def report(self, control, uid, pods):
        self.sequence += 1
        body = {"jobUid": uid, "sequence": self.sequence, "planRevision": self.applied, "step": self.steps, "totalSteps": self.total_steps,
                "samplesPerSecond": 10.0, "loss": 2.0,
                "members": [{"pod": p["metadata"]["name"], "podUid": p["metadata"]["uid"], "ready": True, "stepSeconds": 0.1} for p in pods]}
        if self.applied:
            body["lastSwitch"] = {"revision": self.applied, "outcome": "Applied", "step": max(0, self.steps - 4)}
        return self.ask(control, "POST", "/report", pods[0], body)[0]

    def status(self):
        found = self.plane.api("GET", lab.job_path(self.namespace, self.job), ok_missing=True) or {}
        return found.get("status", {})

    def progress(self):
        return self.status().get("progress", {}).get("step", 0)

    def applied_in_status(self):
        plan = self.status().get("plan", {})
        return plan.get("revision") == plan.get("appliedRevision") == self.applied


class Pool(threading.Thread):
    """Steps many Workers in turn until all are done or stop() is called."""

    def __init__(self, all_workers, interval=0.2):
        super().__init__(daemon=True)
        self.all, self.interval, self.ended, self.error = all_workers, interval, threading.Event(), None

    def run(self):
        while not self.ended.is_set():
            begin = time.monotonic()
            for workers in self.all:
                try:
                    workers.step()
                except ApiError as error:   # a pod that is gone by now
                    if error.code not in (404, 409):
                        self.error = error
                except (OSError, http.client.HTTPException) as error:   # the API server restarts
                    self.error = error
            self.ended.wait(max(0.02, self.interval - (time.monotonic() - begin)))

    def stop(self):
        self.ended.set()
        self.join(30)
