# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/faults/run. Each gets a namespace, an operator of its own (chart's roles of that namespace) behind a proxy,
and one job of four workers that is started, loses a worker in step 20 and completes."""
import json
import pathlib
import threading
import time

import control_plane
import fake_workers
import fault_proxy
import lab
from fault_proxy import Rule
from lab import check

END_LIMIT = 300     # seconds from the job to its end, with all faults; what is denied is asked for again after 30
CACHED = ("pipelinejobs", "pods", "services", "configmaps", "nodes")   # what the operator watches
FLAGS = ["--verify-interval=1s", "--log-level=debug"]


class World:
    """The control plane with nodes, and what a run without faults ends with."""

    def __init__(self, plane, program, folder):
        self.plane, self.program, self.folder = plane, program, pathlib.Path(folder)
        self.lock = threading.Lock()   # guards ideal_
        self.ideal_ = None
        fake_workers.make_nodes(plane)

    def ideal(self):
        with self.lock:
            if self.ideal_ is None:
                with Bench(self, "ideal") as bench:
                    bench.operator()
                    bench.run_job()
                    self.ideal_ = bench.facts()
                    check(self.ideal_["conditions"]["Complete"] == "True/Succeeded", f"without faults: {self.ideal_}")
                    check(self.ideal_["restarts"] == (1, 1), f"without faults: {self.ideal_}")
            return self.ideal_


class Bench:
    """One namespace with proxy, operators and workers."""

    def __init__(self, world, name, more=(), settings=()):
        self.world, self.plane = world, world.plane
        self.name = "t-" + name.replace("_", "-")
        self.watched, self.settings = [self.name, *more], settings   # of the chart
        self.folder = world.folder / "cases" / name
        self.operators, self.pools = [], []
        self.restarts, self.ended = 0, threading.Event()

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.log"):
            old.unlink()
        for name in self.watched:
            self.plane.namespace(name)
        self.plane.install_roles(self.name, "watchNamespaces={" + ",".join(self.watched) + "}", *self.settings)
        self.proxy = fault_proxy.FaultProxy(self.folder, self.plane.port, self.plane.ca)
        self.token = self.folder / "token"
        self.token.write_text(self.plane.account_token(self.name))
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        for pool in self.pools:
            if pool.is_alive():
                pool.stop()
        for operator in self.operators:
            if operator.alive():
                operator.kill()
        self.proxy.stop()
        return False

    def operator(self, *flags, pod="op", wait=True, environment=None):
        config = self.folder / f"{pod}.kubeconfig"
        control_plane.write_kubeconfig(config, f"https://127.0.0.1:{self.proxy.port}", self.proxy.ca, token_file=self.token)
        given = {flag.split("=")[0] for flag in flags}
        usual = [flag for flag in FLAGS if flag.split("=")[0] not in given]
        made = control_plane.Operator(self.world.program, self.folder, config, self.name, f"--watch-namespaces={','.join(self.watched)}", *usual, *flags,
                                      pod=pod, environment=environment)
        self.operators.append(made.start())
        if wait:
            made.wait_ready()
        return made

    def keep_running(self):
        """As the kubelet does: an operator that has ended (it could not start, it lost its lease) is started again."""
        def watch():
            while not self.ended.wait(0.3):
                for operator in self.operators:
                    if not operator.alive():
                        self.restarts += 1
                        operator.start()
        threading.Thread(target=watch, daemon=True).start()

    def leader(self):
        return next((o for o in self.operators if o.alive() and o.leads()), None)

    def control_port(self):
        """Of whoever leads, as the Location of a 307 would say; the last operator started when nobody does."""
        leader = self.leader()
        return leader.control if leader else self.operators[-1].control

    def job(self, name="j", total_steps=60, fail_at=20, start=True, **spec):
        """Makes a job and plays its pods; start=False: not before its pool (the last of `pools`) is started."""
        self.plane.api("POST", f"/apis/weir.dev/v1alpha1/namespaces/{self.name}/pipelinejobs", fake_workers.job_of(name, **spec))
        workers = fake_workers.Workers(self.plane, self.name, name, self.control_port, total_steps=total_steps, fail_at=fail_at)
        self.pools.append(fake_workers.Pool([workers]))
        if start:
            self.pools[-1].start()
        return workers

    def run_job(self, name="j", limit=END_LIMIT):
        workers = self.job(name)
        lab.wait_until("job has ended", lambda: self.condition(name, "Complete") == "True/Succeeded" or self.condition(name, "Failed").startswith("True"),
                       limit, 0.2, lambda: self.show(name, workers))
        return workers

    def get_job(self, name="j"):
        return self.plane.api("GET", lab.job_path(self.name, name), ok_missing=True) or {}

    def condition(self, name, kind):
        entry = lab.condition(self.get_job(name), kind)
        return f"{entry['status']}/{entry['reason']}"

    def show(self, name, workers=None):
        job = self.get_job(name)
        pods = {p["metadata"]["name"]: p["status"].get("phase") for p in self.plane.list(f"/api/v1/namespaces/{self.name}/pods")}
        return (f"{[(c['type'], c['status'], c['reason'], c.get('message', '')[:80]) for c in job.get('status', {}).get('conditions', [])]} plan {job.get('status', {}).get('plan')} "
                f"pods {pods} workers {workers and (workers.steps, workers.have, workers.applied, workers.codes[-5:], str(self.pools[-1].error))}"
                f" rules left {self.proxy.left()}")

    # --- what must be equal ---------------------------------------------------------------------------------------------

    def facts(self, name="j"):
        """The final objects without what may differ: times, uids, numbers of plans that a retry used up."""
        lab.wait_until("status has settled", lambda: self.plane.api("GET", lab.job_path(self.name, name))["status"].get("completionTime"), 30)
        status = self.get_job(name)["status"]
        plan = status["plan"]
        pods = self.plane.list(f"/api/v1/namespaces/{self.name}/pods")
        maps = {m["metadata"]["name"]: m for m in self.plane.list(f"/api/v1/namespaces/{self.name}/configmaps", "weir.dev/job-name")}
        check(plan["revision"] == plan["appliedRevision"], f"plan {plan}")
        document = json.loads(maps[plan["configMapName"]]["data"]["plan.json"])
        ranks = sorted((r["pod"], r["replica"], r["stage"]) for r in document["ranks"])
        return {
            # the ready workers of a job that has ended depend on which pod was seen to end first
            "conditions": {c["type"]: f"{c['status']}/{c['reason']}" for c in status["conditions"] if c["type"] != "WorkersReady"},
            "restarts": (status.get("restarts"), status.get("restartBudgetUsed")),
            "pods": sorted((p["metadata"]["name"], p["status"]["phase"]) for p in pods),
            "services": [s["metadata"]["name"] for s in self.plane.list(f"/api/v1/namespaces/{self.name}/services")],
            "control": sorted(maps[f"{name}-control"]["data"]),
            "plan": (plan["trigger"], plan["k"], plan["stageCount"], document["stages"], ranks, document["schedule"]),
            "owners": sorted({(o["kind"], o["name"]) for p in pods for o in p["metadata"]["ownerReferences"]}),
        }

    def check_end(self, workers, name="j"):
        """The claim of every case."""
        ideal, facts = self.world.ideal(), self.facts(name)
        for key, value in ideal.items():
            check(facts[key] == value, f"{key}: {facts[key]} instead of {value}")
        check(len(workers.seen) == len(ideal["pods"]), f"pods ever made: {sorted(workers.seen.values())}")
        self.check_drift()

    def check_drift(self):
        """Cuts all watches, so that each reflector compares its cache with the server, and reads what it found."""
        self.proxy.clear()
        operator = self.leader()
        check(operator, f"no operator leads: {self.operators[-1].tail()}")
        before = {kind: self.proxy.count("LIST", kind) for kind in CACHED}
        time.sleep(1.3)   # the verify interval, and 20 %

        def compared():
            missing = [kind for kind in CACHED if self.proxy.count("LIST", kind) == before[kind]]
            for kind in missing:   # again: what was between two watches just now had nothing to cut
                self.proxy.cut_watches(kind)
            return not missing
        lab.wait_until("caches are compared", compared, 60, 1.5,
                       lambda: f"{[kind for kind in CACHED if self.proxy.count('LIST', kind) == before[kind]]} are not")
        lab.wait_until("watches again", lambda: len(self.proxy.watches) >= len(CACHED), 60, 0.1, lambda: str(len(self.proxy.watches)))
        check(operator.total("weir_reflector_drift_total") == 0, "the cache had drifted from the server")


# --- random schedules -----------------------------------------------------------------------------------------------------

def schedule(world, seed):
    world.ideal()
    rules = fault_proxy.random_rules(seed)
    with Bench(world, f"schedule_{seed}") as bench:
        try:
            bench.proxy.add(*rules)
            bench.operator(wait=False)
            bench.keep_running()
            workers = bench.run_job()
            bench.check_end(workers)
        except lab.Failure as failure:
            told = "\n    ".join(map(str, fault_proxy.random_rules(seed)))
            used = "\n    ".join(bench.proxy.used)
            raise lab.Failure(f"{failure}\n  rules of seed {seed}:\n    {told}\n  used:\n    {used}\n  log: {bench.folder}/op.log"
                              f"\n  again: tests/faults/run --first {seed} --seeds 1 schedules") from failure
        return f"{len(bench.proxy.used)} faults" + (f", {bench.restarts} restarts of the operator" if bench.restarts else "")


# --- one claim each -------------------------------------------------------------------------------------------------------

def cuts(world, count=100):
    """All watches are cut again and again while the job runs: nothing is listed anew, no pod is missing or made twice."""
    ideal = world.ideal()
    with Bench(world, "cuts") as bench:
        bench.operator("--verify-interval=1h")
        lists = bench.proxy.count("LIST")
        workers, cut = bench.job(total_steps=400), 0
        for number in range(count):
            lab.wait_until("all watches are open", lambda: len(bench.proxy.watches) >= 5, 60, 0.05, lambda: f"{len(bench.proxy.watches)} after {number} cuts")
            time.sleep(1.05)   # a watch that ends within a second counts as an error and waits
            cut += bench.proxy.cut_watches()
        lab.wait_until("job has ended", lambda: bench.condition("j", "Complete") == "True/Succeeded", END_LIMIT, 0.2, lambda: bench.show("j", workers))
        check(bench.proxy.count("LIST") == lists, f"{bench.proxy.count('LIST') - lists} LISTs")
        facts = bench.facts()
        check(facts == ideal, f"{facts} instead of {ideal}")
        check(len(workers.seen) == len(ideal["pods"]), f"pods ever made: {sorted(workers.seen.values())}")
        return f"{cut} watches cut in {count} rounds, 0 LISTs"


def leaders(world):
    """Two replicas: a killed leader is replaced within 20 s, one that stops within 3 s; the follower answers and redirects."""
    with Bench(world, "leaders") as bench:
        bench.operator(pod="one")
        lab.wait_until("one leads", lambda: bench.operators[0].leads(), 30)
        bench.operator(pod="two")
        workers = bench.job(total_steps=100000, fail_at=0)
        lab.wait_until("training", lambda: workers.steps >= 8, 60, show=lambda: bench.show("j", workers))
        redirect(bench, workers)
        notes = []
        for how, limit in (("killed", 20), ("stopped", 3)):
            old = bench.leader()
            begin = time.monotonic()
            if how == "killed":
                old.kill()
            else:
                check(old.stop() == 0, "a stopped operator ends with code 0")
                begin = time.monotonic()   # from the released lease on
            # a new job shows the next reconcile
            bench.plane.api("POST", f"/apis/weir.dev/v1alpha1/namespaces/{bench.name}/pipelinejobs", fake_workers.job_of(how, 1))
            lab.wait_until("next reconcile", lambda: bench.condition(how, "Accepted") == "True/Accepted", 60, 0.05, lambda: bench.show(how))
            took = time.monotonic() - begin
            check(took <= limit, f"next reconcile {took:.1f} s after the leader was {how}, the limit is {limit} s")
            notes.append(f"{how} {took:.1f} s")
            bench.operators.remove(old)
            bench.operator(pod=f"after-{how}")
        steps = workers.steps
        lab.wait_until("training goes on", lambda: workers.steps > steps + 8, 60, show=lambda: bench.show("j", workers))
        check(len(workers.seen) == 4 and bench.get_job()["status"].get("restarts", 0) == 0, f"pods ever made: {sorted(workers.seen.values())}")
        return ", ".join(notes)


def redirect(bench, workers):
    """The follower answers /join and /plan itself and sends reports to the leader's address."""
    follower = next(o for o in bench.operators if not o.leads())
    ca = bench.plane.api("GET", f"/api/v1/namespaces/{bench.name}/configmaps/j-control")["data"]["ca.crt"]
    ask = fake_workers.Control(lambda: follower.control, ca, bench.name, "j")
    chief = next(p for p in workers.pods() if p["metadata"]["labels"]["weir.dev/worker-index"] == "0")
    uid = chief["metadata"]["labels"]["weir.dev/job-uid"]
    code, answer, _ = ask("POST", "/join", workers.token(chief), {"jobUid": uid, "pod": chief["metadata"]["name"], "podUid": chief["metadata"]["uid"],
                                                                   "workerIndex": 0, "attempt": 0, "protocol": {"min": 1, "max": 1}})
    check(code == 200 and answer.get("jobKey"), f"/join of a follower: {code} {answer}")
    code, plan, _ = ask("GET", "/plan?have=0&wait=1", workers.token(chief))
    check(code == 200 and plan["revision"] == workers.have, f"/plan of a follower: {code}")
    code, _, headers = ask("POST", "/report", workers.token(chief), {"jobUid": uid, "sequence": 1, "planRevision": 1})
    wanted = f"https://127.0.0.1:{follower.control}/v1/namespaces/{bench.name}/pipelinejobs/j/report"
    check(code == 307 and headers.get("Location") == wanted, f"/report of a follower: {code} {headers}")


def named(world):
    """Each of these happens in the middle of a job."""
    faults = {"token": new_token, "certificate": new_certificate, "refused": refused, "lied": lied}
    for name, happen in faults.items():
        in_the_middle(world, name, happen)
    return ", ".join(faults)


def restart(world):
    """The API server dies and starts anew with an empty watch cache. It may take long enough to cost the lease."""
    in_the_middle(world, "restart", restart_apiserver)


def in_the_middle(world, name, happen):
    with Bench(world, name) as bench:
        bench.operator()
        workers = bench.job()
        lab.wait_until("training", lambda: workers.steps >= 8, 60, show=lambda: bench.show("j", workers))
        happen(bench)
        lab.wait_until("job has ended", lambda: bench.condition("j", "Complete") == "True/Succeeded", END_LIMIT, 0.2, lambda: f"{name}: {bench.show('j', workers)}")
        try:
            bench.check_end(workers)
        except lab.Failure as failure:
            raise lab.Failure(f"{name}: {failure}") from failure


def new_token(bench):
    """The kubelet has written a new token and the old one is refused: 401 until the file is read again."""
    bench.token.write_text(bench.plane.account_token(bench.name))
    bench.proxy.add(Rule("fail", "", "", count=1, code=401))


def new_certificate(bench):
    """Another authority vouches for the server; the file is replaced as a rotated ConfigMap would be."""
    bench.proxy.rotate()
    bench.proxy.cut_all()


def refused(bench):
    bench.proxy.refuse(3)


def lied(bench):
    """Every kind of write fails after the server has done it."""
    bench.proxy.add(*[Rule("lie", method, count=2, code=code) for method in ("POST", "PATCH", "DELETE") for code in (500, 504)],
                    Rule("lose", "POST", "/pods", count=1), Rule("lose", "PATCH", "/status", count=1))


def restart_apiserver(bench):
    bench.keep_running()
    bench.plane.stop("apiserver", kill=True)
    bench.plane.start_apiserver()


# What the roles allow and this suite does not make the operator do.
UNUSED = {
    ("", "secrets", "update"): "a change of authority: of the self-made one in nine years, of own certificates (unit tests)",
    ("weir.dev", "pipelinejobs/finalizers", "update"): "OpenShift's admission asks for it when a pod gets its owner",
    ("events.k8s.io", "events", "list"): "a pod with a node that does not start: there are no kubelets here (cluster case c07_lifecycle)",
    ("events.k8s.io", "events", "patch"): "an event that repeats within six minutes",
    ("", "pods", "patch"): "the gate of a Pinned pod is opened when there are nodes (cluster case c12_pinned)",
}


def roles(world):
    """The chart's roles are enough, and minimal: each verb is needed by a job of this case (or named in UNUSED)."""
    with Bench(world, "roles") as bench:
        jobs = f"/apis/weir.dev/v1alpha1/namespaces/{bench.name}/pipelinejobs"
        maps, services, pods = (f"/api/v1/namespaces/{bench.name}/{kind}" for kind in ("configmaps", "services", "pods"))
        bench.operator()
        # the name of its Service or of a pod is taken; its profile is read; it is removed when its time is over
        bench.plane.api("POST", services, {"metadata": {"name": "taken"}, "spec": {"ports": [{"port": 1}]}})
        bench.plane.api("POST", jobs, fake_workers.job_of("taken"))
        bench.plane.api("POST", pods, {"metadata": {"name": "podless-g-0"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
        bench.plane.api("POST", jobs, fake_workers.job_of("podless"))
        bench.plane.api("POST", maps, {"metadata": {"name": "prof"}, "data": {"profile.json": json.dumps(fake_workers.profile())}})
        bench.plane.api("POST", jobs, fake_workers.job_of("read", model={"profile": {"source": "ConfigMap", "configMap": {"name": "prof"}}}))
        lab.wait_until("taken name is told", lambda: bench.condition("taken", "Accepted") == "False/NameConflict", 30, show=lambda: bench.show("taken"))
        pinned = fake_workers.job_of("pinned", placement={"mode": "Pinned"}, model={"profile": {"source": "ConfigMap", "configMap": {"name": "prof"}}})
        bench.plane.api("POST", jobs, pinned)
        workers = bench.job(total_steps=100000, fail_at=0)
        for k in (2, 1, 2, 1, 2, 1):   # each a new plan; five are kept
            have = workers.have
            lab.wait_until("plan is applied", lambda: workers.have and workers.applied_in_status(), 60, show=lambda: bench.show("j", workers))
            have = workers.have
            bench.plane.api("PATCH", lab.job_path(bench.name, "j"), {"spec": {"schedule": {"k": {"mode": "Fixed", "initial": k}}}}, "application/merge-patch+json")
            lab.wait_until(f"plan with k = {k}", lambda h=have: workers.have > h, 60, show=lambda: bench.show("j", workers))
        authority = lambda: bench.plane.api("GET", f"{maps}/j-control")["data"]["ca.crt"]  # noqa: E731
        right = authority()
        bench.plane.api("PATCH", f"{maps}/j-control", {"data": {"ca.crt": "spoiled"}}, "application/merge-patch+json")
        lab.wait_until("the authority in the ConfigMap is right again", lambda: authority() == right, 30)
        bench.plane.api("PATCH", lab.job_path(bench.name, "j"), {"spec": {"suspend": True}}, "application/merge-patch+json")
        lab.wait_until("suspended", lambda: bench.condition("j", "Suspended") == "True/Suspended", 60, show=lambda: bench.show("j", workers))
        last = bench.job("last", total_steps=8, fail_at=0)
        bench.plane.api("PATCH", lab.job_path(bench.name, "last"), {"spec": {"ttlSecondsAfterFinished": 1}}, "application/merge-patch+json")
        lab.wait_until("finished job is removed", lambda: last.done and not bench.get_job("last"), 60, show=lambda: bench.show("last", last))
        bench.proxy.cut_watches()   # a watch is audited when it ends
        time.sleep(1)
        audited = bench.plane.audited(bench.name)
        refused = sorted({a[:4] for a in audited if a[4] == 403})
        check(not refused, f"forbidden to the operator: {refused}")
        used, granted = {a[:3] for a in audited}, bench.plane.granted(bench.name)
        idle = sorted(granted - used - set(UNUSED))
        check(not idle, f"granted and never used: {idle}")
        return f"{len(granted)} verbs granted, {len(granted & used)} used, {len(UNUSED)} not tried"


ALL = {"cuts": cuts, "leaders": leaders, "named": named, "restart": restart, "roles": roles}
