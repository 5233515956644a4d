# SPDX-License-Identifier: Apache-2.0
"""What the scale suite runs on and with: pretend nodes that KWOK looks after, a copy of all pods, coordinators that speak the
control API, and what a process costs."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import ssl
import threading
import time

import control_plane
import fake_workers
import lab


class Process:
    """CPU seconds and memory of one process, from /proc."""

    def __init__(self, pid):
        self.pid = pid
        self.begin = self.cpu_seconds()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu(self):
        return self.cpu_seconds() - self.begin

    def rss(self, field="VmRSS"):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0


class Coordinators:
    """Those of all jobs: a few threads, one connection a job, kept for its three calls."""

    def __init__(self, plane, operator, namespace, workers, threads=4):
        self.plane, self.operator, self.namespace, self.workers = plane, operator, namespace, workers
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.lock = threading.Lock()   # guards started, codes, context
        self.started, self.codes, self.context = set(), {}, None

    def look(self, pods):
        """Starts the coordinator of each job whose pods all run."""
        by_job = {}
        for pod in pods:
            if pod["status"].get("podIP") and pod["status"].get("phase") == "Running":
                by_job.setdefault(pod["metadata"]["labels"]["weir.dev/job-name"], []).append(pod)
        for job, all_pods in by_job.items():
            if len(all_pods) == self.workers and job not in self.started:
                self.started.add(job)
                self.pool.submit(self.coordinate, job, sorted(all_pods, key=lambda p: int(p["metadata"]["labels"]["weir.dev/worker-index"])))

    def count(self, call, code):
        with self.lock:
            self.codes[(call, code)] = self.codes.get((call, code), 0) + 1

    def tls(self, job):
        with self.lock:
            if self.context is None:
                ca = self.plane.api("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{job}-control")["data"]["ca.crt"]
                self.context = ssl.create_default_context(cadata=ca)
            return self.context

    def coordinate(self, job, pods):
        try:
            self.train(job, pods)
        except (OSError, http.client.HTTPException, control_plane.ApiError, lab.Failure) as error:
            self.count("error", str(error)[:80])

    def train(self, job, pods):
        uid = pods[0]["metadata"]["labels"]["weir.dev/job-uid"]
        token = self.plane.pod_token(pods[0])
        connection = http.client.HTTPSConnection("127.0.0.1", self.operator.control, context=self.tls(job), timeout=60)

        def ask(method, call, body=None, tries=40):
            for _ in range(tries):
                connection.request(method, f"/v1/namespaces/{self.namespace}/pipelinejobs/{job}{call}", None if body is None else json.dumps(body),
                                   {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                self.count(call.partition("?")[0], answer.status)
                if answer.status in (200, 202):
                    return json.loads(text) if text.startswith(b"{") else {}
                if answer.status not in (304, 429, 503, 404):
                    break
                if answer.status != 304:
                    time.sleep(1)
            raise lab.Failure(f"{call}: {answer.status} {text[:60]}")
        ask("POST", "/join", {"jobUid": uid, "pod": pods[0]["metadata"]["name"], "podUid": pods[0]["metadata"]["uid"], "workerIndex": 0, "attempt": 0,
                              "protocol": {"min": 1, "max": 1}})
        members = [{"pod": p["metadata"]["name"], "podUid": p["metadata"]["uid"], "workerIndex": index, "ips": [p["status"]["podIP"]],
                    "node": p["spec"]["nodeName"], "ranks": [{"device": "cpu", "memoryBytes": 1 << 30}]} for index, p in enumerate(pods)]
        ask("POST", "/register", {"jobUid": uid, "members": members, "model": {"name": "mlp", "layers": fake_workers.LAYERS, "digest": "sha256:0"},
                                  "profile": fake_workers.profile()})
        plan = ask("GET", "/plan?have=0&wait=20")
        ask("POST", "/report", {"jobUid": uid, "sequence": 1, "planRevision": plan["revision"], "step": 1, "totalSteps": 1000,
                                "lastSwitch": {"revision": plan["revision"], "outcome": "Applied", "step": 0}, "samplesPerSecond": 10.0, "loss": 2.0,
                                "members": [{"pod": m["pod"], "podUid": m["podUid"], "ready": True, "stepSeconds": 0.1} for m in members]})
        connection.close()


class Pods:
    """A copy of all pods of the namespace, by a watch of our own: a LIST of 8000 pods each second would be the load."""

    def __init__(self, plane, namespace):
        self.plane, self.namespace, self.pods, self.made = plane, namespace, {}, set()
        self.lock = threading.Lock()   # guards pods, made
        self.first = self.last = None  # when a pod was made
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        version = "0"
        while True:
            connection = http.client.HTTPSConnection("127.0.0.1", self.plane.port, context=self.plane.api.context, timeout=120)
            try:
                connection.request("GET", f"/api/v1/namespaces/{self.namespace}/pods?watch=true&resourceVersion={version}&allowWatchBookmarks=true",
                                   headers={"Authorization": f"Bearer {self.plane.token}"})
                for line in connection.getresponse():
                    event = json.loads(line)
                    meta = event["object"]["metadata"]
                    version = meta.get("resourceVersion", version)
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        self.take(event["type"], meta, event["object"])
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                time.sleep(0.5)
            finally:
                connection.close()

    def take(self, kind, meta, pod):
        with self.lock:
            if kind == "DELETED":
                self.pods.pop(meta["uid"], None)
                return
            if meta["uid"] not in self.made:
                self.made.add(meta["uid"])
                self.last = time.monotonic()
                self.first = self.first or self.last
            self.pods[meta["uid"]] = {"metadata": meta, "status": pod.get("status", {}), "spec": {"nodeName": pod["spec"].get("nodeName")}}

    def of(self, prefix):
        with self.lock:
            return [p for p in self.pods.values() if p["metadata"]["name"].startswith(prefix)]


def running(pod):
    return pod["status"].get("phase") == "Running"


def make_nodes(plane, count):
    """Nodes that KWOK looks after; room for everything, so that the scheduler never has to choose hard."""
    def make(index):
        name = f"kwok-{index:04d}"
        room = {"cpu": "1000", "memory": "4Ti", "pods": "1000", "nvidia.com/gpu": "8"}
        plane.api("POST", "/api/v1/nodes", {
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"kubernetes.io/hostname": name, "type": "kwok"}},
            "status": {"capacity": room, "allocatable": room}})
        # admission marks a new node as not ready; the controller that would take the taint off does not run here
        plane.api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "application/merge-patch+json")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(count)))


def start_kwok(plane):
    """Its own default stages: nodes get ready, pods run at once and stay, deleted pods go."""
    (plane.folder / "kwok.yaml").write_text(KWOK_CONFIG)
    plane.start("kwok", plane.bin / "kwok", f"--kubeconfig={plane.folder / 'kube' / 'admin'}", "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--cidr=10.0.0.1/8", "--node-lease-duration-seconds=0",
                f"--config={plane.folder / 'kwok.yaml'}")


KWOK_CONFIG = """
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions: [{key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}]
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}, reason: KubeletReady, status: "True", type: Ready}
      nodeInfo: {architecture: amd64, bootID: "", containerRuntimeVersion: "", kernelVersion: "", kubeProxyVersion: "", kubeletVersion: fake, machineID: "", operatingSystem: linux, osImage: "", systemUUID: ""}
      phase: Running
---
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.podIP', operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Initialized}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Ready}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: ContainersReady}
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
---
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions: [{key: '.metadata.deletionTimestamp', operator: Exists}]
  next: {delete: true}
"""
