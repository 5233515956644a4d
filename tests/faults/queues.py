# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/faults/run with queues: a job waits for its quota, is let in, is put out while it trains, is suspended, resumed and
deleted. Stand-ins play Kueue and Volcano (fake_queues.py)."""
import fake_queues
import fake_workers
import lab
from cases import Bench
from disasters import collect, ended, training
from fake_queues import COUNT, GATE, GROUP, MANAGED, QUEUE, ROLE
from lab import check

LIMIT = 60


def until(bench, condition, wanted, name="j", workers=None):
    lab.wait_until(f"{name}: {condition} is {wanted}", lambda: bench.condition(name, condition) == wanted, LIMIT, 0.2, lambda: bench.show(name, workers))


def suspend(bench, value, name="j"):
    bench.plane.api("PATCH", lab.job_path(bench.name, name), {"spec": {"suspend": value}}, "application/merge-patch+json")


def kueue(world):
    """A pod group of Kueue waits, is admitted, evicted while it trains, admitted again, suspended and resumed; then the job completes,
    and another one is deleted. Kueue never finds a pod too many and always gets its quota and its pods back."""
    with Bench(world, "kueue") as bench:
        queue = fake_queues.Kueue(bench.plane, bench.name, bench.folder)
        queue.start()
        try:
            return with_kueue(bench, queue)
        finally:
            queue.stop()


def with_kueue(bench, queue):
    pods = lambda: bench.plane.list(f"/api/v1/namespaces/{bench.name}/pods")  # noqa: E731
    live = lambda: [p for p in pods() if fake_queues.active(p)]  # noqa: E731
    free = lambda: all(w.finished or not w.admitted for w in queue.workloads.values())  # noqa: E731
    kept = lambda: [p["metadata"]["name"] for p in pods() if p["metadata"].get("finalizers")]  # noqa: E731
    bench.operator()
    workers = bench.job(total_steps=100000, fail_at=0, labels={QUEUE: "research"})
    until(bench, "PodsScheduled", "False/WaitingForQuota", workers=workers)
    check(bench.condition("j", "Ready") == "False/Queued", bench.show("j"))
    for pod in pods():
        meta = pod["metadata"]
        seen = {key: meta["labels"].get(key) for key in (QUEUE, GROUP, MANAGED)} | {key: meta["annotations"].get(key) for key in (COUNT, ROLE)}
        check(seen == {QUEUE: "research", GROUP: "j", MANAGED: "true", COUNT: "4", ROLE: "g"}, f"{meta['name']}: {seen}")
        check([g["name"] for g in pod["spec"]["schedulingGates"]] == [GATE], f"{meta['name']}: {pod['spec']['schedulingGates']}")
    lab.wait_until("Kueue has composed the group", lambda: "j" in queue.workloads, LIMIT)
    queue.room = 4
    training(bench, workers)

    queue.room, first = 0, {p["metadata"]["uid"] for p in pods()}
    queue.evictions.append("j")
    until(bench, "PodsScheduled", "False/WaitingForQuota", workers=workers)
    lab.wait_until("four new pods wait behind their gates", lambda: len(live()) == 4 and all(fake_queues.gated(p) for p in live()), LIMIT, 0.2,
                   lambda: bench.show("j", workers))
    steps = workers.steps
    queue.room = 4
    lab.wait_until("training goes on", lambda: workers.steps > steps + 8, LIMIT, 0.2, lambda: bench.show("j", workers))
    lab.wait_until("the evicted pods are let go", lambda: not first & {p["metadata"]["uid"] for p in pods()}, LIMIT, 0.2, lambda: str(kept()))
    status = bench.get_job()["status"]
    check((status["restarts"], status.get("restartBudgetUsed", 0)) == (1, 0), f"an eviction: restarts {status['restarts']}, budget {status.get('restartBudgetUsed')}")

    suspend(bench, True)
    until(bench, "Suspended", "True/Suspended", workers=workers)
    lab.wait_until("the quota is free and no pod is kept", lambda: free() and not kept(), LIMIT, 0.2, lambda: f"kept {kept()}")
    suspend(bench, False)
    steps = workers.steps
    lab.wait_until("training goes on after the pause", lambda: workers.steps > steps + 8, LIMIT, 0.2, lambda: bench.show("j", workers))
    group = {p["metadata"]["labels"][GROUP] for p in live()}
    check(len(group) == 1 and group != {"j"}, f"groups {group}: Kueue has ended the first one for good")
    workers.total_steps = workers.steps + 8
    ended(bench, workers)
    lab.wait_until("the quota is free", free, LIMIT)

    again = bench.job("k", total_steps=100000, fail_at=0, labels={QUEUE: "research"})
    training(bench, again)
    bench.plane.api("DELETE", lab.job_path(bench.name, "k"))
    collect(bench.plane, bench.name, "k")
    lab.wait_until("no pod of the deleted job is kept", lambda: not [n for n in kept() if n.startswith("k-")], LIMIT, 0.2, lambda: str(kept()))
    check(not queue.excess, f"Kueue had to delete pods that were too many: {queue.excess}")
    check(queue.error is None, f"Kueue: {queue.error}")
    return f"{len(workers.seen)} pods of a job of 4, none too many"


GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces"


def volcano(world):
    """The PodGroup of Volcano has the fields of its API; its phase and condition are told, one that is deleted is made again, and it
    goes with the pods."""
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with Bench(world, "volcano", settings=("gang.volcano.enabled=true",)) as bench:
        bench.plane.api("POST", crd, fake_queues.volcano_crd())
        try:
            lab.wait_until("the CRD is served", lambda: lab.condition(bench.plane.api("GET", f"{crd}/podgroups.scheduling.volcano.sh"), "Established")["status"] == "True", 60)
            return with_volcano(bench)
        finally:
            bench.plane.api("DELETE", f"{crd}/podgroups.scheduling.volcano.sh", ok_missing=True)


def with_volcano(bench):
    path = f"{GROUPS}/{bench.name}/podgroups/j"
    group = lambda: bench.plane.api("GET", path, ok_missing=True)  # noqa: E731

    def scheduler_says(phase, message=""):
        conditions = [{"type": "Unschedulable", "status": "True", "transitionID": "1", "lastTransitionTime": fake_workers.now(),
                       "reason": "NotEnoughResources", "message": message}] if message else []
        bench.plane.api("PATCH", f"{path}/status", {"status": {"phase": phase, "conditions": conditions}}, "application/merge-patch+json")

    bench.operator("--volcano")
    resources = {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}}
    workers = bench.job(total_steps=100000, fail_at=0, start=False, scheduling={"schedulerName": "volcano", "gang": {"queue": "research"}},
                        workerGroups=[{"name": "g", "count": 4, "resources": resources}])
    lab.wait_until("the PodGroup is made", group, LIMIT)
    check(group()["spec"] == {"minMember": 4, "minTaskMember": {"g": 4}, "queue": "research", "minResources": {"nvidia.com/gpu": "4", "memory": "4294967296"}},
          f"nothing that the API does not have, and no default where we have a value: {group()['spec']}")
    check([o["name"] for o in group()["metadata"]["ownerReferences"]] == ["j"], "its owner is the job")
    lab.wait_until("pods are made", lambda: len(workers.pods()) == 4, LIMIT)
    for pod in workers.pods():
        named = {key: pod["metadata"]["annotations"].get(key) for key in ("scheduling.k8s.io/group-name", "volcano.sh/task-spec")}
        check(named == {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": "g"} and pod["spec"]["schedulerName"] == "volcano", f"{named}")
    scheduler_says("Pending", "queue research has no room")
    until(bench, "PodsScheduled", "False/WaitingForQuota")
    check(bench.condition("j", "Ready") == "False/Queued", bench.show("j"))
    check("queue research has no room" in lab.condition(bench.get_job(), "PodsScheduled")["message"], bench.show("j"))
    scheduler_says("Inqueue", "4/4 tasks in gang unschedulable")
    until(bench, "PodsScheduled", "False/WaitingForGang")
    check(bench.condition("j", "Ready") == "False/Pending", bench.show("j"))

    uid = group()["metadata"]["uid"]
    bench.plane.api("DELETE", path)
    lab.wait_until("it is made again", lambda: (group() or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid, LIMIT)
    bench.pools[-1].start()
    training(bench, workers)
    scheduler_says("Running")
    suspend(bench, True)
    until(bench, "Suspended", "True/Suspended", workers=workers)
    lab.wait_until("it goes with the pods", lambda: group() is None, LIMIT)
    suspend(bench, False)
    lab.wait_until("it comes again", group, LIMIT)
    steps = workers.steps
    lab.wait_until("training goes on", lambda: workers.steps > steps + 8, LIMIT, 0.2, lambda: bench.show("j", workers))
    workers.total_steps = workers.steps + 8
    ended(bench, workers)
    lab.wait_until("it is gone at the end", lambda: group() is None, LIMIT)
    refused = sorted({a[:4] for a in bench.plane.audited(bench.name) if a[4] == 403})
    check(not refused, f"forbidden to the operator: {refused}")
    return "told: WaitingForQuota, WaitingForGang; made again once"


ALL = {"kueue": kueue, "volcano": volcano}
