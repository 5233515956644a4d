# SPDX-License-Identifier: Apache-2.0
"""Pods that end or do not start in unusual ways: other containers, init containers, kubelets that reject, names that are taken, edits."""
import time

import jobs
import lab
from lab import check

LONG = {"test_finished_while_no_operator_looked"}
STEPS = 20
MANY = 100000


def job(name, steps=STEPS, *, group="w", template=None, **spec):
    """One worker on any node, without emulated compute: its steps take milliseconds."""
    group = {"name": group, "count": 1, "template": {"spec": {"terminationGracePeriodSeconds": 2, **(template or {})}}}
    worker = spec.pop("worker", {})
    body = jobs.gpt_job(name, steps, text=False, micro_batches=1, parallelism={"stages": 1}, workerGroups=[group], adaptation={"mode": "Off"}, **spec)
    body["spec"]["worker"].update(volumes=[], volumeMounts=[])
    body["spec"]["worker"].update(worker)
    return body


def job_pods(namespace, name):
    return lab.pods(namespace, f"weir.dev/job-name={name}")


def told(namespace, name, kind):
    condition = lab.condition(lab.job(namespace, name), kind)
    return f"{condition['status']}/{condition['reason']}: {condition['message']}"


def wait_told(namespace, name, kind, *parts, timeout):
    lab.wait_until(f"{kind} of {name} says {' and '.join(parts)}", lambda: all(p in told(namespace, name, kind) for p in parts), timeout,
                   show=lambda: lab.show_condition(lab.job(namespace, name), kind))


def status(namespace, name):
    return lab.job(namespace, name).get("status", {})


def remove(namespace, name):
    lab.kubectl("-n", namespace, "delete", "ppj", name, "--wait=false")
    lab.wait_until(f"pods of {name} are gone", lambda: not job_pods(namespace, name), 60)


def test_side_container_that_never_ends(namespace):
    side = {"name": "side", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    lab.apply(job("side", template={"containers": [{"name": "trainer"}, side]}), namespace=namespace)
    wait_told(namespace, "side", "Complete", "True", timeout=90)
    check(status(namespace, "side").get("restarts", 0) == 0, "a restart was counted")
    lab.wait_until("the pod is given back", lambda: all(p["status"]["phase"] != "Running" for p in job_pods(namespace, "side")), 40)
    remove(namespace, "side")

    wrong = job("sidewrong", template={"containers": [{"name": "trainer", "args": ["--model=gpt-huge"]}, side]})
    lab.apply(wrong, namespace=namespace)
    wait_told(namespace, "sidewrong", "Failed", "True/ConfigurationError", "gpt-huge", timeout=30)
    check("{" not in told(namespace, "sidewrong", "Failed"), f"not one plain line: {told(namespace, 'sidewrong', 'Failed')}")
    remove(namespace, "sidewrong")


def test_init_container_that_fails(namespace):
    init = {"name": "fetch-data", "image": lab.WORKER_IMAGE, "imagePullPolicy": "Never", "args": ["--no-such-option"]}
    lab.apply(job("fetch", template={"initContainers": [init], "containers": [{"name": "trainer"}]}, failurePolicy={"maxRestarts": 2}), namespace=namespace)
    wait_told(namespace, "fetch", "Failed", "True/RestartLimitExceeded", "fetch-data", "exit code", "--no-such-option", timeout=120)
    check(len(job_pods(namespace, "fetch")) == 3, f"{len(job_pods(namespace, 'fetch'))} pods instead of 3")
    remove(namespace, "fetch")


def test_kubelet_that_rejects(namespace):
    template = {"nodeName": "n4", "containers": [{"name": "trainer", "resources": {"requests": {"cpu": "640"}}}]}
    lab.apply(job("rejected", template=template, failurePolicy={"maxRestarts": 0}), namespace=namespace)
    lab.wait_until("a second pod", lambda: len(job_pods(namespace, "rejected")) > 1, 60)
    found = status(namespace, "rejected")
    check(found["restartReasons"][0]["reason"] == "Rejected" and found.get("restartBudgetUsed", 0) == 0, f"{found['restartReasons']}")
    check([n["node"] for n in found["avoidedNodes"]] == ["n4"], f"avoided nodes {found.get('avoidedNodes')}")
    remove(namespace, "rejected")


def test_misspelt_config_map_is_told(namespace):
    volumes = {"volumes": [{"name": "text", "configMap": {"name": "tetx"}}], "volumeMounts": [{"name": "text", "mountPath": "/data"}]}
    lab.apply(job("misspelt", worker=volumes), namespace=namespace)
    begin = time.monotonic()
    wait_told(namespace, "misspelt", "WorkersReady", "False/PodCannotStart", 'configmap "tetx" not found', timeout=30)
    took = time.monotonic() - begin
    lab.wait_until("an event", lambda: lab.events(namespace, "PodCannotStart", "misspelt"), 10)
    remove(namespace, "misspelt")
    return f"told after {took:.0f} s"


def test_wrong_image_is_told_and_its_correction_taken(namespace):
    lab.apply(job("typo", MANY, worker={"image": "localhost/weir-worker:tset"}), namespace=namespace)
    wait_told(namespace, "typo", "WorkersReady", "False/PodCannotStart", "weir-worker:tset", timeout=30)
    lab.kubectl("-n", namespace, "patch", "ppj/typo", "--type=merge", "-p", '{"spec":{"worker":{"image":"%s"}}}' % lab.WORKER_IMAGE)
    wait_told(namespace, "typo", "Ready", "True/Running", timeout=60)
    check(status(namespace, "typo").get("restarts", 0) == 0, "the correction was counted as a restart")
    remove(namespace, "typo")


def test_the_same_name_again(namespace):
    """The old pod has a container that does not hear SIGTERM for 15 s: the new job waits, and then starts at once."""
    lab.apply(job("again", MANY), namespace=namespace)
    wait_told(namespace, "again", "Ready", "True/Running", timeout=60)
    [old] = job_pods(namespace, "again")
    lab.signal_container(old, "STOP")   # ends with SIGKILL only
    lab.kubectl("-n", namespace, "delete", "ppj/again", "--wait=false")
    lab.wait_until("the old job is gone", lambda: lab.get(lab.job_path(namespace, "again")) is None, 20)
    lab.apply(job("again", MANY), namespace=namespace)
    accepted = []
    lab.wait_until("it runs", lambda: accepted.append(told(namespace, "again", "Accepted")) or told(namespace, "again", "Ready").startswith("True"), 90)
    check(not any(a.startswith("False") for a in accepted), f"refused meanwhile: {accepted[-1]}")
    check(status(namespace, "again").get("restarts", 0) == 0, "a restart was counted")
    remove(namespace, "again")


def test_two_jobs_whose_pods_would_have_one_name(namespace):
    lab.apply(job("a", MANY, group="w-b"), namespace=namespace)
    lab.wait_until("its pod", lambda: job_pods(namespace, "a"), 30)
    lab.apply(job("a-w", MANY, group="b"), namespace=namespace)
    for name in ("a", "a-w"):
        wait_told(namespace, name, "Ready", "True/Running", timeout=60)
        remove(namespace, name)


def test_finished_while_no_operator_looked(namespace):
    """All steps done and the pod gone, both while the operator is away: not one step is done again."""
    def replicas(count):
        lab.kubectl("-n", "weir-system", "scale", "deploy/weir-operator", f"--replicas={count}")
        lab.kubectl("-n", "weir-system", "rollout", "status", "deploy/weir-operator", "--timeout=90s", timeout=100)
    lab.apply(job("unseen", 3000), namespace=namespace)
    wait_told(namespace, "unseen", "Ready", "True/Running", timeout=60)
    [pod] = job_pods(namespace, "unseen")
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    replicas(0)
    try:   # at its end a worker waits a minute for an operator that is away
        lab.wait_until("the worker has ended", lambda: lab.get(path)["status"]["phase"] == "Succeeded", 300)
        lab.kubectl("-n", namespace, "delete", "pod", pod["metadata"]["name"], timeout=60)
    finally:
        replicas(1)
    lab.wait_until("its end is told", lambda: told(namespace, "unseen", "Failed").startswith("True/EndUnknown")
                   or told(namespace, "unseen", "Complete").startswith("True"), 90, show=lambda: lab.show_condition(lab.job(namespace, "unseen"), "Ready"))
    check(not job_pods(namespace, "unseen"), "it is trained again")
    check(status(namespace, "unseen").get("restarts", 0) == 0, "a restart was counted")
    remove(namespace, "unseen")
