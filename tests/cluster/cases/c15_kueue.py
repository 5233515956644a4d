# SPDX-License-Identifier: Apache-2.0
"""Kueue itself, installed from its own module: jobs are queued, admitted, preempted, resumed from their checkpoints, suspended by
their users and by Kueue, and two jobs share a quota for one. Each job wants two GPUs, and the queue has two."""
import pathlib
import subprocess
import tempfile
import time

import jobs
import lab
from lab import check

LONG = {"test_queued_until_there_is_quota", "test_preempted_and_resumed", "test_suspended_job_gives_its_quota_back",
        "test_queue_on_hold", "test_two_jobs_under_a_quota_for_one"}
FOLDER = lab.STATE / "kueue"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
LIMIT = 120
API = "/apis/kueue.x-k8s.io/v1beta2"
KUSTOMIZATION = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [default]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/image, value: "localhost/kueue:1"}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
"""


def kueue_object(kind, name, spec=None, namespace=None, **more):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **({"spec": spec} if spec is not None else {}), **more}


def quota(gpus, hold="None"):
    covered = {"nvidia.com/gpu": gpus, "cpu": 100, "memory": "100Gi"}
    flavor = {"name": "any", "resources": [{"name": name, "nominalQuota": str(value)} for name, value in covered.items()]}
    return kueue_object("ClusterQueue", "research", {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": list(covered), "flavors": [flavor]}],
        "preemption": {"withinClusterQueue": "LowerPriority"}, "stopPolicy": hold})


READY = set()


def install(namespace):
    """Once per cluster: the manager of Kueue by its own kustomization, and a queue with two GPUs."""
    if READY:
        return
    began = time.monotonic()
    with lab.machine_network():
        subprocess.run([lab.HERE / "build.sh", "kueue"], check=True, stdout=subprocess.DEVNULL)
    lab.import_image("kueue", jobs.NODES)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cp", "-r", f"{lab.bin_dir()}/kueue-config/.", folder], check=True)
        pathlib.Path(folder, "kustomization.yaml").write_text(KUSTOMIZATION)
        manifests = lab.kubectl("kustomize", folder)
    lab.kubectl("apply", "--server-side", "-f", "-", text_input=manifests)
    lab.kubectl("-n", "kueue-system", "rollout", "status", "deployment/kueue-controller-manager", "--timeout=180s", timeout=190)

    def applied():   # the webhooks answer some seconds after the manager is ready
        try:
            lab.apply(kueue_object("ResourceFlavor", "any", {}), quota(2),
                      kueue_object("WorkloadPriorityClass", "urgent", value=1000, description="above the others"),
                      kueue_object("LocalQueue", "team", {"clusterQueue": "research"}, namespace))
            return True
        except lab.Failure as failure:
            applied.why = str(failure)
            return False
    lab.wait_until("Kueue takes its objects", applied, LIMIT, 2, lambda: applied.why)
    lab.shared_claim(namespace, "ckpt", FOLDER)
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020), text=False), namespace=namespace)
    READY.add(True)
    lab.say(f"Kueue is installed: {time.monotonic() - began:.0f} s")


def job(name, steps, **labels):
    """Two stages, a GPU each, saved every five steps in the folder of its name."""
    checkpoint = {"path": "/ckpt", "intervalSteps": 5, "graceSeconds": 20, "persistentVolumeClaim": {"claimName": "ckpt"}}
    groups = [{**jobs.group("a100", 1), "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 1, "memory": "1Gi"}}},
              {**jobs.group("l4", 1), "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 1, "memory": "1Gi"}}}]
    body = jobs.gpt_job(name, steps, text=False, micro_batches=8, parallelism={"stages": 2}, workerGroups=groups, checkpoint=checkpoint,
                        args=[f"--loss-log=/ckpt/{name}.$(WEIR_POD_NAME).json"])
    body["metadata"]["labels"] = {QUEUE: "team", **labels}
    return body


def until(namespace, name, kind, status, reason=None, limit=LIMIT):
    def holds():
        found = lab.condition(lab.job(namespace, name), kind)
        return found["status"] == status and reason in (None, found["reason"])
    lab.wait_until(f"{name}: {kind} is {status}{'/' + reason if reason else ''}", holds, limit,
                   show=lambda: "; ".join(lab.show_condition(lab.job(namespace, name), k) for k in ("Ready", "PodsScheduled", "Suspended")))


def trains(namespace, name, beyond=0, limit=LIMIT):
    lab.wait_until(f"{name} trains beyond step {beyond}", lambda: lab.reported_step(namespace, name) > beyond, limit,
                   show=lambda: lab.show_condition(lab.job(namespace, name), "Ready"))
    return lab.reported_step(namespace, name)


def set_spec(namespace, name, **spec):
    lab.api(lab.job_path(namespace, name), "PATCH", {"spec": spec}, "application/merge-patch+json")


def remove(namespace, *names):
    """Deletes these jobs; no pod and no workload of theirs stays, with a finalizer of Kueue, say."""
    left = lambda: [o["metadata"]["name"] for o in (*lab.pods(namespace), *workloads(namespace))  # noqa: E731
                    if o["metadata"]["name"].split(".")[0] in names or o["metadata"].get("labels", {}).get("weir.dev/job-name") in names]
    for name in names:
        lab.kubectl("-n", namespace, "delete", f"ppj/{name}", "--ignore-not-found", "--timeout=90s", timeout=100)
    lab.wait_until("their pods and workloads are gone", lambda: not left(), LIMIT, 1, lambda: str(left()))


def workloads(namespace):
    return lab.api(f"{API}/namespaces/{namespace}/workloads")["items"]


def used():
    """GPUs of the queue that admitted workloads hold."""
    usage = lab.api(f"{API}/clusterqueues/research")["status"].get("flavorsUsage") or []
    return sum(int(r["total"]) for flavor in usage for r in flavor["resources"] if r["name"] == "nvidia.com/gpu")


def no_restart_charged(namespace, name):
    status = lab.job(namespace, name)["status"]
    check(status.get("restartBudgetUsed", 0) == 0, f"{name}: budget used {status.get('restartBudgetUsed')}, reasons {status.get('restartReasons')}")
    check(not lab.events(namespace, "ProgressLost", name), f"{name}: event ProgressLost")


def test_queued_until_there_is_quota(namespace):
    install(namespace)
    lab.apply(quota(0))
    lab.apply(job("waits", 20), namespace=namespace)
    until(namespace, "waits", "PodsScheduled", "False", "WaitingForQuota")
    until(namespace, "waits", "Ready", "False", "Queued")
    lab.apply(quota(2))
    until(namespace, "waits", "Complete", "True")
    lab.wait_until("the quota is given back", lambda: used() == 0, LIMIT, 1, lambda: str(used()))
    remove(namespace, "waits")
    return "queued, admitted, complete, quota given back"


def test_preempted_and_resumed(namespace):
    install(namespace)
    lab.apply(job("patient", 60), namespace=namespace)
    before = trains(namespace, "patient", 8)
    lab.apply(job("urgent", 10, **{PRIORITY: "urgent"}), namespace=namespace)
    until(namespace, "patient", "PodsScheduled", "False", "WaitingForQuota")
    until(namespace, "urgent", "Complete", "True")
    until(namespace, "patient", "Complete", "True")
    steps = set(lab.losses(FOLDER, "patient"))
    check(steps == set(range(60)), f"losses of {len(steps)} steps, from {min(steps)} to {max(steps)}")
    no_restart_charged(namespace, "patient")
    remove(namespace, "patient", "urgent")
    return f"preempted at step {before}, went on from its checkpoint"


def test_suspended_job_gives_its_quota_back(namespace):
    install(namespace)
    lab.apply(job("paused", 60), namespace=namespace)
    step = trains(namespace, "paused", 8)
    set_spec(namespace, "paused", suspend=True)
    until(namespace, "paused", "Suspended", "True")
    lab.wait_until("the quota is given back", lambda: used() == 0, LIMIT, 1, lambda: str(used()))
    lab.apply(job("other", 10), namespace=namespace)
    trains(namespace, "other")
    set_spec(namespace, "paused", suspend=False)
    until(namespace, "other", "Complete", "True")
    until(namespace, "paused", "Complete", "True")
    no_restart_charged(namespace, "paused")
    remove(namespace, "paused", "other")
    return f"suspended at step {step}; another job ran meanwhile"


def test_queue_on_hold(namespace):
    install(namespace)
    lab.apply(job("held", 60), namespace=namespace)
    step = trains(namespace, "held", 8)
    lab.apply(quota(2, "HoldAndDrain"))
    until(namespace, "held", "PodsScheduled", "False", "WaitingForQuota")
    lab.apply(quota(2))
    until(namespace, "held", "Complete", "True")
    no_restart_charged(namespace, "held")
    remove(namespace, "held")
    return f"stopped by Kueue at step {step}, complete after it was let in again"


def test_two_jobs_under_a_quota_for_one(namespace):
    install(namespace)
    lab.apply(job("one", 20), job("two", 20), namespace=namespace)
    for name in ("one", "two"):
        until(namespace, name, "Complete", "True", limit=2 * LIMIT)
        no_restart_charged(namespace, name)
    lab.wait_until("the quota is given back", lambda: used() == 0, LIMIT, 1, lambda: str(used()))
    remove(namespace, "one", "two")
    return "one after the other, no deadlock"


def cleanup(namespace):
    lab.kubectl("-n", namespace, "delete", "ppj,pods", "--all", "--ignore-not-found", "--timeout=60s", ok=None, timeout=70)
