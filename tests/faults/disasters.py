# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/faults/run: the CRD or a namespace is deleted while a job runs, the clock of the leader jumps, a flood of events."""
import calendar
import subprocess
import threading
import time

import fake_workers
import lab
from cases import END_LIMIT, Bench
from control_plane import ApiError
from fault_proxy import Rule
from lab import check

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = f"{CRDS}/pipelinejobs.weir.dev"


def training(bench, workers, step=8):
    lab.wait_until("training", lambda: workers.steps >= step, 60, show=lambda: bench.show("j", workers))


def ended(bench, workers):
    lab.wait_until("job has ended", lambda: bench.condition("j", "Complete") == "True/Succeeded", END_LIMIT, 0.2, lambda: bench.show("j", workers))


def collect(plane, namespace, job):
    """What the garbage collector does with the objects of a job that is gone; none runs here."""
    for kind in ("pods", "services", "configmaps"):
        for found in plane.list(f"/api/v1/namespaces/{namespace}/{kind}", f"weir.dev/job-name={job}"):
            plane.api("DELETE", f"/api/v1/namespaces/{namespace}/{kind}/{found['metadata']['name']}", {"gracePeriodSeconds": 0}, ok_missing=True)


def served(bench):
    """Whether the API server serves jobs; it answers 404, then 429 while it makes the storage of a new CRD."""
    try:
        return bench.plane.api("GET", f"/apis/weir.dev/v1alpha1/namespaces/{bench.name}/pipelinejobs", ok_missing=True)
    except ApiError as error:
        if error.code != 429:
            raise
        return None


def crd(world):
    """The CRD is deleted, and all jobs with it; then it is there again, and so is the job. The operator has waited for it."""
    ideal = world.ideal()
    with Bench(world, "crd") as bench:
        operator = bench.operator()
        before = bench.job(total_steps=100000, fail_at=0)
        training(bench, before)
        bench.pools.pop().stop()
        bench.plane.api("DELETE", CRD)
        lab.wait_until("the CRD is gone", lambda: bench.plane.api("GET", CRD, ok_missing=True) is None, 60)
        collect(bench.plane, bench.name, "j")
        asked = bench.proxy.count("LIST", "pipelinejobs")
        time.sleep(8)   # how often it asks meanwhile is the claim
        asked = bench.proxy.count("LIST", "pipelinejobs") - asked
        check(operator.alive(), f"the operator ended without its CRD: {operator.tail()}")
        check(asked <= 12, f"{asked} LISTs of PipelineJobs within 8 s without a CRD")
        check(not bench.plane.list(f"/api/v1/namespaces/{bench.name}/pods"), "pods were made for a job that is gone")
        bench.plane.api("POST", CRDS, bench.plane.crd())
        lab.wait_until("the CRD is served", lambda: lab.condition(bench.plane.api("GET", CRD), "Established")["status"] == "True", 60)
        lab.wait_until("jobs can be made", lambda: served(bench), 60)
        workers = bench.job()
        ended(bench, workers)
        facts = bench.facts()
        check(facts == ideal, f"{facts} instead of {ideal}")
        bench.check_drift()
        return f"asked {asked} times in 8 s without the CRD"


def namespace(world):
    """One of two watched namespaces is deleted while the pods of its job are made: nothing is tried again and again there, and the
    job of the other one does not notice; not even when the namespace and the operator's role in it are gone."""
    doomed = "t-doomed"
    with Bench(world, "namespace", more=[doomed]) as bench:
        operator, plane = bench.operator(), bench.plane
        bench.proxy.add(Rule("delay", "POST", f"/namespaces/{doomed}/pods", count=50, seconds=0.4))
        plane.api("POST", f"/apis/weir.dev/v1alpha1/namespaces/{doomed}/pipelinejobs", fake_workers.job_of("short", 8))
        lab.wait_until("the first pod", lambda: plane.list(f"/api/v1/namespaces/{doomed}/pods"), 30)
        plane.api("DELETE", f"/api/v1/namespaces/{doomed}")
        time.sleep(3)
        made, tried = len(plane.list(f"/api/v1/namespaces/{doomed}/pods")), writes(bench.proxy, doomed)
        check(made < 8, "all pods were made before the namespace was deleted: the case shows nothing")
        time.sleep(10)   # how often it tries meanwhile is the claim
        tried = writes(bench.proxy, doomed) - tried
        check(tried <= 5, f"{tried} writes within 10 s to a namespace that is being deleted")
        workers = bench.job()
        training(bench, workers)
        remove_namespace(plane, doomed)
        ended(bench, workers)
        bench.check_end(workers)
        lab.wait_until("the operator is ready without that namespace", lambda: operator.get(operator.health, "/readyz")[0] == 200, 30, show=lambda: operator.get(operator.health, "/readyz")[1])
        return f"{made} of 8 pods made, {tried} writes in 10 s after that"


def writes(proxy, where):
    return sum(1 for line in list(proxy.log) if f"/namespaces/{where}/" in line and not line.startswith("GET"))


def remove_namespace(plane, name):
    """As the namespace controller: all that is in it, then itself."""
    plane.api("DELETE", lab.job_path(name, "short"), ok_missing=True)
    collect(plane, name, "short")
    for kind in ("rolebindings", "roles"):
        for found in plane.list(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/{kind}"):
            plane.api("DELETE", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/{kind}/{found['metadata']['name']}")
    left = plane.api("GET", f"/api/v1/namespaces/{name}")
    left["spec"]["finalizers"] = []
    plane.api("PUT", f"/api/v1/namespaces/{name}/finalize", left)


CLOCK_SOURCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) {
  long seconds = 0;
  FILE* file = fopen(getenv("TEST_CLOCK_FILE"), "r");
  if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
  return seconds;
}
int clock_gettime(clockid_t id, struct timespec* time) {
  int code = (int)syscall(SYS_clock_gettime, id, time);
  if (code == 0 && id == CLOCK_REALTIME) time->tv_sec += offset();
  return code;
}
int gettimeofday(struct timeval* restrict value, void* restrict zone) {
  struct timespec now; (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  value->tv_sec = now.tv_sec; value->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


def clock(world):
    """The leader's wall clock is half an hour ahead when it starts, jumps to an hour ahead and then two hours back while a job
    trains: the lease stays where it is (it is judged by the follower's own monotonic clock), nothing is restarted or made again,
    no waiting pod is released before its time, and what the leader writes has the time of the API server."""
    with Bench(world, "clock") as bench:
        shim, offset = bench.folder / "clock.so", bench.folder / "offset"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, "-x", "c", "-"], input=CLOCK_SOURCE, text=True, check=True, capture_output=True)
        offset.write_text("1800")
        jumping = bench.operator(pod="jumping", environment={"LD_PRELOAD": str(shim), "TEST_CLOCK_FILE": str(offset)})
        lab.wait_until("one leads", jumping.leads, 30)
        steady = bench.operator(pod="steady")
        workers = bench.job(total_steps=160, fail_at=0)
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{bench.name}/leases/weir-operator"
        for seconds, step in ((3600, 8), (-3600, 60)):
            training(bench, workers, step)
            offset.write_text(str(seconds))
            said = bench.plane.api("GET", lease)["spec"]["renewTime"]
            lab.wait_until("the lease is renewed", lambda s=said: bench.plane.api("GET", lease)["spec"]["renewTime"] != s, 30)
            waits(bench, f"late-{step}")
        ended(bench, workers)
        check(jumping.alive() and jumping.leads() and not steady.leads(), "the lease has moved because a clock jumped")
        check(len(workers.seen) == 4 and bench.get_job()["status"].get("restarts", 0) == 0, f"pods ever made: {sorted(workers.seen.values())}")
        bench.check_drift()
        return f"renewed {behind(bench.plane.api('GET', lease)['spec']['renewTime'])} s ago"


def behind(text):
    """Seconds since this time of an object."""
    return time.time() - calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


def waits(bench, name):
    """A job whose pods find no node: they keep waiting, though the leader's own clock says that scheduling.timeoutSeconds (600) are
    over since the API server made them."""
    bench.plane.api("POST", f"/apis/weir.dev/v1alpha1/namespaces/{bench.name}/pipelinejobs", fake_workers.job_of(name, 2))
    pods = lambda: bench.plane.list(f"/api/v1/namespaces/{bench.name}/pods", f"weir.dev/job-name={name}")  # noqa: E731
    lab.wait_until("its pods are made", lambda: len(pods()) == 2, 30)
    uids = sorted(pod["metadata"]["uid"] for pod in pods())
    for note in ("look", "look again"):   # each makes the leader judge the job anew and write what it sees
        no_node = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": note}
        for pod in pods():
            bench.plane.api("PATCH", f"/api/v1/namespaces/{bench.name}/pods/{pod['metadata']['name']}/status", {"status": {"conditions": [no_node]}},
                            "application/strategic-merge-patch+json")
        lab.wait_until("the leader tells it", lambda n=note: lab.condition(bench.get_job(name), "PodsScheduled")["message"].endswith(f": {n}"), 30, 0.2,
                       lambda: bench.show(name))
    check(bench.condition(name, "PodsScheduled") == "False/Unschedulable", f"{name}: {bench.condition(name, 'PodsScheduled')}")
    check(sorted(pod["metadata"]["uid"] for pod in pods()) == uids, f"{name}: the pods were made again")
    check(abs(behind(bench.get_job(name)["status"]["startTime"])) < 60, f"started {bench.get_job(name)['status']['startTime']}, says a wrong clock")


def flood(world, changes=1500):
    """Other programs change labels of the job's pods and nodes all the time: the end is the same, and nothing is written for it."""
    with Bench(world, "flood") as bench:
        operator = bench.operator()
        workers = bench.job(total_steps=400)
        training(bench, workers)
        count, over = [0], threading.Event()

        def disturb():
            while not over.is_set() and count[0] < changes:
                for pod in workers.pods():
                    change(f"/api/v1/namespaces/{bench.name}/pods/{pod['metadata']['name']}")
                for node in fake_workers.NODES:
                    change(f"/api/v1/nodes/{node}")

        def change(path):
            count[0] += 1
            try:
                bench.plane.api("PATCH", path, {"metadata": {"annotations": {"example.com/flood": str(count[0])}}}, "application/merge-patch+json")
            except ApiError:   # the pod has been replaced
                pass
        before = written(bench.proxy)
        threads = [threading.Thread(target=disturb, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            ended(bench, workers)
        finally:
            over.set()
        wrote = written(bench.proxy) - before
        bench.check_end(workers)
        check(count[0] >= 300, f"only {count[0]} changes: no flood")
        # progress every 15 s, a restart, its pod, plan and events, the end; TokenReviews of one joining pod
        check(wrote <= 60, f"{wrote} writes of the operator during {count[0]} changes that are none of its business")
        passes = operator.total("controller_runtime_reconcile_total")
        return f"{count[0]} changes, {wrote} writes, {passes:.0f} passes"


def written(proxy):
    return sum(1 for line in list(proxy.log) if not line.startswith("GET") and "/leases/" not in line and "/tokenreviews" not in line)


ALL = {"crd": crd, "namespace": namespace, "clock": clock, "flood": flood}
