# SPDX-License-Identifier: Apache-2.0
"""Kubeflow's training-operator v1.8.1 on the same control plane: it makes pods and Services itself, as ours does, so it is the
fair peer for what a job costs. Its client is limited to 20 requests/s with a burst of 30 (controller-runtime's default, no flag)."""
import base64
import json
import pathlib
import sys
import time

import control_plane
import lab
from load import Pods, Process, running

PROGRAM, CRD = "training-operator.v1", "kubeflow.org_pytorchjobs.yaml"   # of tests/cluster/build.sh scale
QPS, BURST = 20, 30
SYSTEM, NAMESPACE = "kubeflow", "peer"
CERTIFICATES = pathlib.Path("/tmp/k8s-webhook-server/serving-certs")   # written into the program
LIMIT = 600
JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"


class TrainingOperator:
    def __init__(self, plane):
        if not (plane.bin / PROGRAM).exists():
            raise lab.Skip(f"{plane.bin / PROGRAM} is not built (tests/cluster/build.sh scale)")
        self.plane, self.metrics, self.probe, self.webhook = plane, *(control_plane.free_port() for _ in range(3))

    @property
    def pid(self):
        return self.plane.programs["peer"].pid

    def start(self):
        self.plane.start("peer", "/usr/bin/env", f"KUBECONFIG={self.plane.folder / 'kube' / 'admin'}", self.plane.bin / PROGRAM, "--enable-scheme=pytorchjob",
                         "--controller-threads=8", "--zap-devel=false", f"--metrics-bind-address=127.0.0.1:{self.metrics}",
                         f"--health-probe-bind-address=127.0.0.1:{self.probe}", f"--webhook-server-port={self.webhook}")

    def install(self):
        """Its CRD, and what it wants before its reconcilers start: a Secret that it fills, as files in the folder it looks at, and
        a webhook configuration."""
        crd = lab.sh(sys.executable, "-c", "import json, sys, yaml; print(json.dumps(yaml.load(open(sys.argv[1]), Loader=yaml.CSafeLoader)))", self.plane.bin / CRD)
        self.plane.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json.loads(crd))
        for name in (SYSTEM, NAMESPACE):
            self.plane.namespace(name)
        secrets = f"/api/v1/namespaces/{SYSTEM}/secrets"
        self.plane.api("POST", secrets, {"metadata": {"name": "training-operator-webhook-cert"}})
        self.plane.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                       {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": []})
        self.start()
        filled = lambda: self.plane.api("GET", f"{secrets}/training-operator-webhook-cert").get("data", {})  # noqa: E731
        lab.wait_until("the peer has made its certificate", lambda: "tls.crt" in filled(), 60, 0.5, lambda: self.plane.tail("peer"))
        self.plane.stop("peer")
        CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for name, value in filled().items():
            (CERTIFICATES / name).write_bytes(base64.b64decode(value))
        self.start()
        lab.wait_until("the peer is ready", lambda: control_plane.Operator.get(self.probe, "/readyz")[0] == 200, 120, 0.5, lambda: self.plane.tail("peer"))

    def requests(self):
        text = control_plane.Operator.get(self.metrics, "/metrics")[1]
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("rest_client_requests_total"))

    def __enter__(self):
        try:
            self.install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.plane.stop("peer")
        for name in ("tls.crt", "tls.key", "ca.crt", "ca.key"):
            (CERTIFICATES / name).unlink(missing_ok=True)


def job_of(name, workers):
    def replicas(count):
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [
            {"name": "pytorch", "image": "example.com/worker:1", "args": ["--model=mlp"]}]}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(workers - 1)}}}


def measure(plane, jobs, workers):
    """{what: value} of so many jobs: seconds until all run, pods a second, CPU seconds, peak MB, requests a job."""
    with TrainingOperator(plane) as peer:
        pods, process, before = Pods(plane, NAMESPACE), Process(peer.pid), peer.requests()
        begin = time.monotonic()
        for index in range(jobs):
            plane.api("POST", JOBS, job_of(f"p-{index:04d}", workers))

        def all_run():
            if sum(1 for pod in pods.of("p-") if running(pod)) < jobs * workers:
                return False
            return all(lab.condition(job, "Running")["status"] == "True" for job in plane.list(JOBS))
        lab.wait_until("all jobs of the peer run", all_run, LIMIT, 0.5, lambda: f"{len(pods.made)} pods made\n{plane.tail('peer')}")
        wall = time.monotonic() - begin
        return {"wall": wall, "rate": len(pods.made) / (pods.last - pods.first), "cpu": process.cpu(), "rss": process.rss("VmHWM"),
                "requests": (peer.requests() - before) / jobs}
