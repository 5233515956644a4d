# SPDX-License-Identifier: Apache-2.0
"""Bad days: the operator killed at random moments, a drained node, a lost node, a worker out of memory, hangs, the coordinator
killed. Three workers on three of four nodes, so that there is a node to go to. Each case prints the events and conditions that
a user sees.

WEIR_OPERATOR_KILLS (5) and WEIR_SEED (1) rule the first case."""
import json
import os
import random
import threading
import time

import jobs
import lab
from lab import check, say

FOLDER = lab.STATE / "bad-days"
KILLS, SEED = int(os.environ.get("WEIR_OPERATOR_KILLS", "5")), int(os.environ.get("WEIR_SEED", "1"))
KILLS_A_JOB = 5
WORKERS = 3
LONG = {"test_operator_killed_at_random_moments", "test_killed_coordinator", "test_drained_node", "test_lost_node", "test_hanging_kubelet", "test_out_of_memory",
        "test_hanging_worker", "test_hanging_coordinator"}   # a normal run has the killed workers of c03 and c07
END_LIMIT = 600   # seconds to a job's end, on a machine that is busy with other things


def job(name, steps, *, interval=10, **spec):
    """Three stages, each on a node of its own because it takes the node's GPU; any node is right. Its folder of the claim is /ckpt/NAME."""
    environment = [{"name": "WEIR_EMULATE_DEVICE", "value": "A100"}, {"name": "WEIR_EMULATE_PROFILE", "value": "/emulation/profile.json"}]
    group = {"name": "w", "count": WORKERS, "resources": {"limits": {"nvidia.com/gpu": 1}},
             "template": {"spec": {"containers": [{"name": "trainer", "env": environment}]}}}
    checkpoint = {"path": "/ckpt", "intervalSteps": interval, "graceSeconds": 10, "persistentVolumeClaim": {"claimName": "ckpt"}}
    return jobs.gpt_job(name, steps, text=False, micro_batches=6, args=[f"--loss-log=/ckpt/{name}.$(WEIR_POD_NAME).json"],
                        parallelism={"stages": WORKERS}, workerGroups=[group], checkpoint=checkpoint, **spec)


def losses(name):
    """[(pod, step)] of all computed losses, in the order of each file."""
    found = []
    for path in sorted(FOLDER.glob(f"{name}.*.json")):
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:   # the last line of a killed worker
                continue
            if entry.get("loss") is not None:
                found.append((path.name, entry["step"]))
    return found


def job_pods(namespace, name):
    return lab.pods(namespace, f"weir.dev/job-name={name}")


def index_of(pod):
    return int(pod["metadata"]["labels"]["weir.dev/worker-index"])


def alive(pods):
    """The pods that count: neither ended nor being deleted."""
    return sorted((p for p in pods if p["status"].get("phase") in ("Pending", "Running") and "deletionTimestamp" not in p["metadata"]), key=index_of)


def show(namespace, name, *kinds):
    """What a user sees: the events of the job and some of its conditions."""
    for event in lab.events(namespace, name=name):
        print(f"    {event['type']:7} {event['reason']}: {event.get('note', '')[:300]}")
    for kind in kinds:
        print(f"    {lab.show_condition(lab.job(namespace, name), kind)[:600]}")


def status(namespace, name):
    return lab.job(namespace, name).get("status", {})


def wait_step(namespace, name, step):
    lab.wait_until(f"{name} is at step {step}", lambda: lab.reported_step(namespace, name) >= step, END_LIMIT, show=lambda: lab.show_condition(lab.job(namespace, name), "Ready"))


def wait_condition(namespace, name, kind, reason=None, limit=END_LIMIT):
    def holds():
        entry = lab.condition(lab.job(namespace, name), kind)
        return entry["status"] == "True" and reason in (None, entry["reason"])
    lab.wait_until(f"{name}: {kind}=True{'/' + reason if reason else ''}", holds, limit,
                   show=lambda: lab.show_condition(lab.job(namespace, name), kind) + "; " + lab.show_condition(lab.job(namespace, name), "Ready"))


def wait_restart(namespace, name, reason, limit=END_LIMIT):
    """One restart for this reason, counted in the status."""
    lab.wait_until(f"{name}: a restart is counted", lambda: status(namespace, name).get("restarts", 0) > 0, limit,
                   show=lambda: lab.show_condition(lab.job(namespace, name), "WorkersReady"))
    reasons = {r["reason"]: r["count"] for r in status(namespace, name).get("restartReasons", [])}
    check(reasons == {reason: 1}, f"restartReasons {reasons}, expected one {reason}")


def finish(namespace, name, steps, restarts, budget):
    wait_condition(namespace, name, "Complete")
    end = status(namespace, name)
    check(end["progress"]["step"] == steps, f"step {end['progress']['step']} instead of {steps}")
    seen = (end.get("restarts", 0), end.get("restartBudgetUsed", 0))
    check(seen == (restarts, budget), f"{seen[0]} restarts, budget used {seen[1]}; expected {restarts}, {budget}")
    check(not lab.events(namespace, "ProgressLost", name), "event ProgressLost although there is a checkpoint")


def remove(namespace, name):
    """Gives the GPUs back."""
    lab.kubectl("-n", namespace, "delete", "ppj", name, "--wait=false")
    lab.wait_until(f"pods of {name} are gone", lambda: not job_pods(namespace, name), 180)


def prepare(namespace):
    if lab.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/ckpt") is None:
        lab.shared_claim(namespace, "ckpt", FOLDER)
        lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020), text=False), namespace=namespace)


def start(namespace, name, steps, **options):
    prepare(namespace)
    lab.apply(job(name, steps, **options), namespace=namespace)
    lab.wait_until(f"{name} trains", lambda: lab.reported_step(namespace, name) >= 2, END_LIMIT,
                   show=lambda: lab.show_condition(lab.job(namespace, name), "Ready") + "; " + lab.show_condition(lab.job(namespace, name), "WorkersReady"))


def a_worker(namespace, name, busy_nodes=()):
    """A worker that does not coordinate, on none of these nodes if there is one."""
    found = alive(job_pods(namespace, name))[1:]
    return next((p for p in found if p["spec"]["nodeName"] not in busy_nodes), found[0])


class Pods(threading.Thread):
    """Every pod of the job that ever was, and whether two of one worker were wanted at a time."""

    def __init__(self, namespace, name):
        super().__init__(daemon=True)
        self.namespace, self.name = namespace, name
        self.made, self.twins, self.ended = {}, set(), threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.5):
            try:
                found = job_pods(self.namespace, self.name)
            except (OSError, lab.ApiError):
                continue
            self.made.update({p["metadata"]["uid"]: p["metadata"]["name"] for p in found})
            running = [index_of(p) for p in alive(found) if p["status"].get("phase") == "Running"]
            self.twins |= {index for index in running if running.count(index) > 1}

    def stop(self):
        self.ended.set()
        self.join(30)


def operators():
    return [p for p in lab.pods("weir-system", "app.kubernetes.io/name=weir-operator") if "deletionTimestamp" not in p["metadata"]]


def kill_operator():
    """SIGKILL, no lease is released; the pod is removed at once, so that the Deployment makes another without a back-off."""
    [pod] = operators()
    try:
        lab.signal_container(pod, "KILL")
    except (lab.Failure, KeyError):
        pass   # it had not started yet: removing the pod is what is left to do
    lab.kubectl("-n", "weir-system", "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    lab.wait_until("a new operator pod runs", lambda: [p for p in operators() if p["metadata"]["uid"] != pod["metadata"]["uid"]
                                                       and p["status"].get("phase") == "Running"], 180)


def one_job_with_kills(namespace, name, rng, kills, steps):
    """The operator is killed `kills` times: while pods are made, up to the first plan, around a worker's death, at any time."""
    watched, moments = Pods(namespace, name), []
    begin = time.monotonic()

    def kill(when):
        moments.append(f"{when} ({time.monotonic() - begin:.0f} s, step {lab.reported_step(namespace, name)})")
        kill_operator()
    try:
        lab.apply(job(name, steps), namespace=namespace)
        time.sleep(rng.uniform(0, 4))
        kill("at the start")
        lab.wait_until(f"{name} has a checkpoint", lambda: lab.reported_step(namespace, name) >= 15, END_LIMIT, show=lambda: lab.show_condition(lab.job(namespace, name), "Ready"))
        if kills > 1:
            lab.signal_container(a_worker(namespace, name), "KILL")
            time.sleep(rng.uniform(0, 3))
            kill("after a worker's death")
        for _ in range(kills - 2):
            time.sleep(rng.uniform(0, 25))   # before, while and after the new one leads: a dead leader's lease lasts 15 s
            kill("at any time")
        finish(namespace, name, steps, 1 if kills > 1 else 0, 0)
    finally:
        watched.stop()
    restarting = lab.events(namespace, "Restarting", name)
    check(len(restarting) <= 1, f"{len(restarting)} events Restarting for one death")
    check(not watched.twins, f"workers {watched.twins} had two running pods at a time")
    check(len(watched.made) == WORKERS, f"pods ever made: {sorted(watched.made.values())}; the kubelet starts the worker again in its pod")
    return moments


def test_operator_killed_at_random_moments(namespace):
    prepare(namespace)
    rng = random.Random(SEED)
    say(f"seed {SEED}, {KILLS} kills (WEIR_SEED={SEED} WEIR_OPERATOR_KILLS={KILLS})")
    left, number = KILLS, 0
    while left > 0:
        kills, name = min(left, KILLS_A_JOB), f"kill-{number}"
        for moment in one_job_with_kills(namespace, name, rng, kills, steps=300):
            print(f"    killed {moment}")
        show(namespace, name, "Complete")
        remove(namespace, name)
        left, number = left - kills, number + 1
    return f"{KILLS} kills, each job complete, its one restart counted once, no pod made twice"


def test_killed_coordinator(namespace):
    start(namespace, "chief", 60)
    wait_step(namespace, "chief", 15)
    before = alive(job_pods(namespace, "chief"))
    lab.signal_container(before[0], "KILL")
    wait_restart(namespace, "chief", "Crashed")
    finish(namespace, "chief", 60, 1, 0)   # workers hold copies of its state
    after = {p["metadata"]["uid"] for p in job_pods(namespace, "chief")}
    check({p["metadata"]["uid"] for p in before[1:]} <= after, "the survivors were made again")
    show(namespace, "chief", "Complete")
    remove(namespace, "chief")


def test_drained_node(namespace):
    """Eviction: the leaving worker has the step saved within its grace, ends with 143, and uses nothing of the budget."""
    start(namespace, "drain", 80, interval=100000)   # the only checkpoint is that of the SIGTERM
    wait_step(namespace, "drain", 10)
    pod = a_worker(namespace, "drain")
    node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    codes = []

    def look():   # a deleted pod is there until its kubelet has ended it
        while not codes and (seen := lab.get(path)):
            codes.extend(c["state"]["terminated"]["exitCode"] for c in seen["status"].get("containerStatuses", []) if "terminated" in c["state"])
            time.sleep(0.05)
    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        lab.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector=weir.dev/job-name=drain", "--timeout=120s", timeout=150)
        watching.join(60)
        check(codes == [143], f"exit code {codes} of the drained worker")
        saved = sorted(p.name for p in (FOLDER / "drain").glob("step-*") if not p.name.endswith(".tmp"))
        check(saved, "no checkpoint was written within the grace")
        wait_restart(namespace, "drain", "Disrupted")
        finish(namespace, "drain", 80, 1, 0)
    finally:
        lab.kubectl("uncordon", node)
    replaced = [p for p in job_pods(namespace, "drain") if index_of(p) == index_of(pod)]
    check(replaced and all(p["spec"]["nodeName"] != node for p in replaced), "the worker was made again on the drained node")
    steps = [step for _, step in losses("drain")]
    check(len(steps) == len(set(steps)), f"steps were computed twice although they were saved: {sorted(s for s in set(steps) if steps.count(s) > 1)}")
    show(namespace, "drain", "Complete")
    remove(namespace, "drain")
    return f"exit code 143, saved {saved[0]}"


def test_lost_node(namespace):
    """The node stands still, kubelet and worker: 60 s after its last sign of life another node has its worker; what the old worker says later is refused."""
    start(namespace, "lost", 100000)
    pod = a_worker(namespace, "lost", {"n1"} | {p["spec"]["nodeName"] for p in operators()})
    node = pod["spec"]["nodeName"]
    begin = time.monotonic()
    lab.signal_kubelet(node, "STOP")
    lab.signal_container(pod, "STOP")
    try:
        wait_restart(namespace, "lost", "NodeLost", 300)
        seen = time.monotonic() - begin
        lab.wait_until("the worker runs elsewhere", lambda: any(index_of(p) == index_of(pod) and p["spec"].get("nodeName") not in (None, node)
                                                                and p["status"].get("phase") == "Running" for p in alive(job_pods(namespace, "lost"))), 180)
        elsewhere = time.monotonic() - begin
        wait_condition(namespace, "lost", "Ready", "Running")
        step = lab.reported_step(namespace, "lost")
        wait_step(namespace, "lost", step + 10)
        end = status(namespace, "lost")
        check((end["restarts"], end.get("restartBudgetUsed", 0)) == (1, 0), f"{end['restarts']} restarts, budget used {end.get('restartBudgetUsed')}")
        show(namespace, "lost", "Ready", "WorkersReady")
    finally:
        lab.signal_container(pod, "CONT")
        lab.signal_kubelet(node, "CONT")
    lab.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=120s", timeout=130)
    lab.wait_until("the old pod is gone", lambda: lab.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}") is None, 180)
    step = lab.reported_step(namespace, "lost")
    wait_step(namespace, "lost", step + 10)
    check(status(namespace, "lost")["restarts"] == 1, "the return of the node cost another restart")
    remove(namespace, "lost")
    return f"noticed after {seen:.0f} s, its worker ran elsewhere after {elsewhere:.0f} s"


def test_hanging_kubelet(namespace):
    """The kubelet hangs, its worker trains on: the node is not ready, but the coordinator hears the worker, so nothing is restarted."""
    start(namespace, "heard", 100000)
    pod = a_worker(namespace, "heard", {"n1"} | {p["spec"]["nodeName"] for p in operators()})
    node = pod["spec"]["nodeName"]
    lab.signal_kubelet(node, "STOP")
    try:
        lab.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=120s", timeout=130)
        step = lab.reported_step(namespace, "heard")
        time.sleep(75)   # a node that is not ready for 60 s is lost, if nothing else is known
        wait_step(namespace, "heard", step + 10)
        check(status(namespace, "heard").get("restarts", 0) == 0, "a worker that trains was restarted")
    finally:
        lab.signal_kubelet(node, "CONT")
    remove(namespace, "heard")


def test_out_of_memory(namespace):
    """Checkpoints that fill the container's memory: killed by the kernel, tried once more, then the job ends with a hint. (A model
    that is too large for its memory limit is refused before it starts: that is another condition.)"""
    group = {"name": "cpu", "count": 1, "resources": {"limits": {"memory": "100Mi"}}}
    body = jobs.gpt_job("oom", 100000, text=False, parallelism={"stages": 1}, workerGroups=[group],
                        checkpoint={"path": "/dev/shm/ckpt", "intervalSteps": 1, "graceSeconds": 5}, adaptation={"mode": "Off"})
    body["spec"]["worker"].update(volumes=[], volumeMounts=[], env=[{"name": "WEIR_CHECKPOINT_KEEP", "value": "1000"}])
    lab.apply(body, namespace=namespace)
    wait_condition(namespace, "oom", "Failed", "OutOfMemory")
    failed = lab.condition(lab.job(namespace, "oom"), "Failed")
    check("give it more memory" in failed["message"] and "batch.microBatchSize" in failed["message"], failed["message"])
    check("oom-cpu-0-1" in failed["message"], f"not told of a second pod: {failed['message']}")
    show(namespace, "oom", "Failed")
    remove(namespace, "oom")


def hang(namespace, name, pod, steps):
    """SIGSTOP: its readiness probe fails and nobody hears it; two witnesses, one restart."""
    begin = time.monotonic()
    lab.signal_container(pod, "STOP")
    lab.wait_until("a restart is counted", lambda: status(namespace, name).get("restarts", 0) > 0, 400, show=lambda: lab.show_condition(lab.job(namespace, name), "WorkersReady"))
    took = time.monotonic() - begin
    reasons = [r["reason"] for r in status(namespace, name)["restartReasons"]]
    check(reasons in (["NoProgress"], ["WorkerSilent"]), f"restartReasons {reasons}")
    # Where a worker is silent the others hold copies of its state; nobody makes good that no step ends.
    finish(namespace, name, steps, 1, 0 if reasons == ["WorkerSilent"] else 1)
    show(namespace, name, "Complete")
    return f"{reasons[0]} after {took:.0f} s"


def test_hanging_worker(namespace):
    start(namespace, "hang", 100, progressDeadlineSeconds=60)
    wait_step(namespace, "hang", 15)   # there is a checkpoint
    note = hang(namespace, "hang", a_worker(namespace, "hang"), 100)
    remove(namespace, "hang")
    return note


def test_hanging_coordinator(namespace):
    """Another worker coordinates, and this one is made again as any other that hangs."""
    start(namespace, "mute", 150, progressDeadlineSeconds=60)
    wait_step(namespace, "mute", 15)
    pod = alive(job_pods(namespace, "mute"))[0]
    note = hang(namespace, "mute", pod, 150)
    check(status(namespace, "mute").get("coordinator", {}).get("lostPodUid") == pod["metadata"]["uid"], "nobody else coordinates")
    remove(namespace, "mute")
    return note


def cleanup(_):
    for number in range(1, 5):
        lab.signal_kubelet(f"n{number}", "CONT")
        lab.kubectl("uncordon", f"n{number}", ok=None)
