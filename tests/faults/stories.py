# SPDX-License-Identifier: Apache-2.0
"""recovery_schedules of tests/faults/run: a job whose workers are lost, leave and come back while requests and watches of the
operator fail. A seed draws the faults, the shape of the job and its story: one loss, or two of them one after the other."""
import collections
import dataclasses
import http.client
import json
import random
import ssl
import threading
import time

import fake_recovery
import fake_workers
import fault_proxy
import lab
from cases import END_LIMIT, Bench
from lab import check

REST_LIMIT = 150    # seconds from a loss until the job trains as before; what is denied is asked for again after 30
EPISODE = 30        # failures of so many seconds after a restart are part of it
# Restarts of the job by what happened. One that only stood still has not been lost.
COUNTED = {"ends": "Crashed", "hangs": "WorkerSilent", "pauses": None, "restarts": "Crashed", "returns": "Crashed", "evicted": "Disrupted",
           "deleted": "PodDeleted"}
# Without a spare one that hangs is waited for. The coordinator of term 1 is not drained: the next pod of its index has that term, too.
LOSSES = {
    0: ("coordinator_ends", "coordinator_pauses", "coordinator_restarts", "worker_ends", "worker_evicted", "worker_deleted", "worker_restarts"),
    1: ("coordinator_ends", "coordinator_hangs", "coordinator_restarts", "worker_ends", "worker_hangs", "worker_evicted", "worker_deleted", "worker_restarts")}
PAIRS = {
    0: (("coordinator_ends", "coordinator_ends"), ("coordinator_ends", "coordinator_evicted"), ("coordinator_pauses", "worker_evicted"),
        ("coordinator_restarts", "coordinator_ends"), ("worker_evicted", "coordinator_ends"), ("worker_deleted", "worker_restarts"),
        ("worker_restarts", "worker_ends")),
    1: (("coordinator_ends", "worker_evicted"), ("coordinator_hangs", "coordinator_evicted"), ("coordinator_hangs", "coordinator_restarts"),
        ("worker_ends", "worker_ends"), ("worker_evicted", "coordinator_hangs"), ("worker_hangs", "coordinator_ends"), ("worker_restarts", "worker_hangs"))}


@dataclasses.dataclass(frozen=True)
class Story:
    replicas: int
    spares: int
    losses: tuple

    def __str__(self):
        shape = "1 pipeline" if self.replicas == 1 else f"{self.replicas} replicas"
        return f"{shape}{', a spare' if self.spares else ''}: {', then '.join(self.losses)}"

    def spec(self):
        return {"workerGroups": [{"name": "g", "count": 4 // self.replicas, "spares": self.spares}],
                "parallelism": {"dataParallel": self.replicas, "stages": 4 // self.replicas}}

    def counted(self, losses=None):
        """Restarts by reason, of the first `losses` or all of them."""
        counted = collections.Counter(COUNTED[loss.split("_")[1]] for loss in self.losses[:losses])
        return {reason: count for reason, count in counted.items() if reason}


# Of the first seeds; a normal run tells five of them. A coordinator that returns is started again, too late for the others.
FIRST = {1: Story(2, 1, ("coordinator_hangs",)), 2: Story(1, 0, ("worker_evicted", "coordinator_ends")), 3: Story(2, 1, ("worker_ends",)),
         4: Story(1, 1, ("worker_evicted",)), 5: Story(1, 1, ("coordinator_returns",)), 6: Story(2, 0, ("coordinator_returns",))}


def story_of(seed):
    draw = random.Random(f"story {seed}")
    if seed in FIRST:
        return FIRST[seed]
    replicas, spares = draw.randint(1, 2), draw.randint(0, 1)
    losses = draw.choice(PAIRS[spares]) if draw.random() < 0.4 else (draw.choice(LOSSES[spares]),)
    return Story(replicas, spares, losses)


class Terms(threading.Thread):
    """Every (term, pod uid) of a job's status that the API server tells, past the proxy."""

    def __init__(self, plane, namespace, job):
        super().__init__(daemon=True)
        self.plane, self.path = plane, f"/apis/weir.dev/v1alpha1/namespaces/{namespace}/pipelinejobs?watch=true&fieldSelector=metadata.name%3D{job}"
        self.version = plane.api("GET", lab.job_path(namespace, job))["metadata"]["resourceVersion"]
        self.seen, self.ended, self.error = set(), threading.Event(), None
        self.start()

    def run(self):
        context = ssl.create_default_context(cafile=str(self.plane.ca))
        while not self.ended.is_set():
            connection = http.client.HTTPSConnection("127.0.0.1", self.plane.port, context=context, timeout=5)
            try:
                connection.request("GET", f"{self.path}&resourceVersion={self.version}", headers={"Authorization": f"Bearer {self.plane.token}"})
                answer = connection.getresponse()
                while line := answer.readline():
                    self.take(json.loads(line))
            except (OSError, http.client.HTTPException, ValueError):   # nothing has changed for a while, or in the middle of a line
                self.ended.wait(0.1)
            finally:
                connection.close()

    def take(self, event):
        thing = event["object"]
        if event["type"] == "ERROR":
            self.error = lab.Failure(f"the watch of terms: {thing}")
            return self.ended.set()
        self.version = thing["metadata"]["resourceVersion"]
        named = thing.get("status", {}).get("coordinator")
        if named:
            self.seen.add((named.get("term"), named["podUid"]))

    def stop(self):
        self.ended.set()
        self.join(10)


class Telling:
    """One run of a story."""

    def __init__(self, bench, story, rules=(), kill=None):
        self.bench, self.story, self.rules = bench, story, list(rules)
        self.mark = 0       # steps that were done when a loss was over
        self.kill = kill    # seconds after the first loss when the operator is killed; None: it is not
        plane = bench.plane
        plane.api("POST", f"/apis/weir.dev/v1alpha1/namespaces/{bench.name}/pipelinejobs", fake_workers.job_of("j", **story.spec()))
        self.workers = fake_recovery.RecoveringWorkers(plane, bench.name, "j", lambda: bench.operators[-1].control)
        self.terms = Terms(plane, bench.name, "j")
        bench.pools.append(fake_workers.Pool([self.workers], interval=0.3))
        bench.pools[-1].start()

    def wait(self, text, probe, limit=REST_LIMIT):
        lab.wait_until(f"{self.story}: {text}", probe, limit, 0.3, self.show)
        with (self.bench.folder / "story.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}: {len(self.bench.proxy.used)} faults\n")

    def show(self):
        workers = [(w.name, w.follows and w.follows[1], w.leads and w.leads.term, w.hangs is not None) for w in self.workers.all.values()]
        status = self.bench.get_job().get("status", {})
        return (f"{self.bench.show('j')} workers {workers} steps {self.workers.steps} revision {self.workers.revision} codes {self.workers.codes[-8:]}"
                f" error {self.bench.pools[-1].error} restarts {status.get('restartReasons')} coordinator {status.get('coordinator')}"
                f" recovery {status.get('recovery')}")

    def tell(self):
        self.wait("the first plan runs", lambda: self.at_rest(0), END_LIMIT)
        for number, loss in enumerate(self.story.losses):
            victim, happens = self.victim_of(loss), loss.split("_")[1]
            if number > 0:
                self.next_episode(victim, happens)
            part = len(self.rules) // (len(self.story.losses) - number)
            self.bench.proxy.add(*self.rules[:part])
            if self.kill is not None and number == 0:
                threading.Timer(self.kill, self.bench.operators[0].kill).start()
            self.rules = self.rules[part:]
            self.lose(victim, happens)
            self.mark = self.workers.steps
            restarts = sum(self.story.counted(number + 1).values())
            self.wait(f"trains again after {loss}", lambda n=restarts: self.at_rest(n))
        self.workers.finish = True
        self.wait("job has ended", lambda: self.bench.condition("j", "Complete") == "True/Succeeded" or self.bench.condition("j", "Failed").startswith("True"))

    def status(self):
        return self.bench.get_job().get("status", {})

    def at_rest(self, restarts):
        """All places are filled, so many restarts are counted (or more), and steps have been done since `mark`."""
        job = self.bench.get_job()
        status, workers = job.get("status", {}), self.workers
        plan, recovery = status.get("plan", {}), status.get("recovery", {})
        alive = workers.alive()
        last, restart = recovery.get("last", {}).get("time", ""), status.get("lastRestartTime", "")
        return (lab.condition(job, "Ready")["reason"] == "Running" and lab.condition(job, "WorkersReady")["status"] == "True"
                and lab.condition(job, "Recoverable")["status"] == ("True" if self.story.replicas > 1 else "False")
                and plan.get("revision") == plan.get("appliedRevision") == workers.revision and workers.chief()
                and len(alive) == len(workers.all) == 4 + self.story.spares and all(w.follows and w.unheard is None for w in alive)
                and (not self.story.spares or recovery.get("spares") == "1/1")
                and recovery.get("incarnation", 0) == workers.incarnation and status.get("restarts", 0) >= restarts
                and not recovery.get("lostReplicas") and last >= restart and workers.steps >= self.mark + 12)

    def victim_of(self, loss):
        chief = self.workers.chief()
        others = [w for w in self.workers.alive() if w.uid in self.workers.ranks and w is not chief]
        return chief if loss.startswith("coordinator") else max(others, key=lambda w: (w.attempt, -w.index))

    def next_episode(self, victim, happens):
        """Or the next loss may be part of the restart before: that of a pod which is older, unless its process has trained since."""
        status, pause = self.status(), 3
        restart, made = status.get("lastRestartTime"), int(victim.pod["metadata"]["annotations"]["weir.dev/pod-generation"])
        if restart is not None and happens not in ("pauses", "restarts", "returns") and made < status.get("podGeneration", 0):
            pause = fake_recovery.seconds_of(restart) + EPISODE + 3 - time.time()
        end = time.monotonic() + max(3, pause)
        self.wait("the episode is over", lambda: time.monotonic() > end)

    def lose(self, victim, happens):
        workers = self.workers
        coordinates, term, revision = victim is workers.chief(), workers.chief().leads.term, workers.revision
        goes = happens in ("ends", "hangs", "evicted", "deleted") or (happens == "returns" and self.story.spares)
        if goes and (self.story.spares or coordinates):
            workers.held.add(victim.index)   # a new pod needs longer than a claim and a spare
        if happens == "ends":
            workers.end_pod(victim.pod, 137)
        elif happens in ("hangs", "pauses"):
            victim.hangs = time.monotonic()
        elif happens in ("restarts", "returns"):
            if happens == "returns":
                workers.slow.add(victim.uid)
            workers.restart_in_place(victim)
        else:
            workers.leave(victim, evicted=happens == "evicted")
        if coordinates and happens != "restarts":
            self.wait("another one coordinates", lambda: any(w.leads and w.leads.term > term for w in workers.alive()))
        if self.story.spares and goes:
            self.wait("the spare has the place", lambda: workers.revision > revision)
        if happens in ("pauses", "returns"):
            workers.slow.clear()
            workers.all.get(victim.uid, victim).hangs = None
        workers.held.clear()

    def facts(self):
        """Those of a job, and what its losses have left in status."""
        facts, status = self.bench.facts(), self.status()
        recovery = status.get("recovery", {})
        facts["reasons"] = sorted((r["reason"], r["count"]) for r in status.get("restartReasons", []))
        # the spares of a job that has ended depend on which pod was seen to end first
        facts["recovery"] = (recovery.get("last", {}).get("source"), recovery.get("lostSteps", 0), recovery.get("lostReplicas", []),
                             sorted(c["count"] for c in recovery.get("containerRestarts", [])))
        facts["term"] = status.get("coordinator", {}).get("term", 1)
        facts["made"] = sorted(self.workers.seen.values())
        return facts

    def check_terms(self):
        """One coordinator a term."""
        self.terms.stop()
        check(self.terms.error is None, f"the watch of terms: {self.terms.error}")
        seen = self.terms.seen | {(term, uid) for term, uid in self.workers.told if term > 1}
        terms = [term for term, _ in seen]
        check(len(terms) == len(set(terms)), f"terms and pods: {sorted(seen)}")
        return len(terms)


def ideal_of(world, story):
    with world.lock:
        ideals = world.__dict__.setdefault("stories", {})
        entry = ideals.setdefault(story, [threading.Lock(), None])
    with entry[0]:
        if entry[1] is None:
            with Bench(world, f"ideal_story_{list(ideals).index(story)}") as bench:
                bench.operator()
                telling = Telling(bench, story)
                telling.tell()
                entry[1] = telling.facts()
                telling.check_terms()
                counted = sorted(story.counted().items())
                check(entry[1]["conditions"]["Complete"] == "True/Succeeded" and entry[1]["reasons"] == counted,
                      f"{story} without faults: {entry[1]}, counted should be {counted}")
        return entry[1]


def schedule(world, seed):
    story = story_of(seed)
    rules = fault_proxy.random_rules(seed)
    draw = random.Random(f"operator {seed}")
    kill = draw.uniform(0.5, 4) if draw.random() < 0.25 else None
    ideal = ideal_of(world, story)
    with Bench(world, f"recovery_{seed}") as bench:
        try:
            bench.proxy.add(*rules[:4])
            bench.operator(wait=False)
            bench.keep_running()
            telling = Telling(bench, story, rules[4:], kill)
            telling.tell()
            facts = telling.facts()
            for key, value in ideal.items():
                if key == "term":   # one that takes its role up too late for the others loses it again
                    check(facts[key] >= value, f"{key}: {facts[key]} instead of {value}")
                else:
                    check(facts[key] == value, f"{key}: {facts[key]} instead of {value}")
            terms = telling.check_terms()
            bench.check_drift()
        except lab.Failure as failure:
            told = "\n    ".join(map(str, fault_proxy.random_rules(seed)))
            used = "\n    ".join(bench.proxy.used)
            killed = f", the operator is killed after {kill:.1f} s" if kill else ""
            raise lab.Failure(f"{failure}\n  story: {story}{killed}\n  rules of seed {seed}:\n    {told}\n  used:\n    {used}\n  log: {bench.folder}/op.log"
                              f"\n  again: tests/faults/run --first {seed} --seeds 1 recovery_schedules") from failure
        return f"{story}; {len(bench.proxy.used)} faults, {terms} terms" + (f", {bench.restarts} restarts of the operator" if bench.restarts else "")
