# SPDX-License-Identifier: Apache-2.0
"""Workers that are lost, claim, substitute and leave: each pod's process follows the coordinator that the operator names, asks
again by a claim while it does not hear it, and coordinates where it is named itself. worker/protocol/README.md "Terms" says how.
The model is left out: steps are a number that never falls, and a plan is applied once all of its ranks are there.

    workers = RecoveringWorkers(plane, namespace, job, control_port)
    workers.end_pod(...), .restart_in_place(...), .leave(...), .chief().hangs = time.monotonic()
"""
import calendar
import http.client
import time

from control_plane import ApiError
from fake_workers import LAYERS, Workers, now, profile

FIRST_SPARE = 8192
UNHEARD = 1.5       # seconds without its coordinator after which a worker claims; real ones wait for 4
CLAIM_EVERY = 1
LOST_AFTER = 3      # seconds of silence after which a coordinator counts a worker as lost; real ones: 5
TAKES_UP = 1        # a new coordinator waits so long for the others; real ones for 3
GRACE = 60          # of a pod that is drained
RESIGNS = 2         # seconds that a coordinator needs to save


def seconds_of(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


class Worker:
    """The process in a pod; one that is started again there has another `boot`."""

    def __init__(self, pod, boot):
        labels = pod["metadata"]["labels"]
        self.pod, self.boot = pod, boot
        self.uid, self.name = pod["metadata"]["uid"], pod["metadata"]["name"]
        self.index, self.attempt = int(labels["weir.dev/worker-index"]), int(labels["weir.dev/attempt"])
        self.follows = None     # (pod uid, term) of the coordinator, as the operator has said
        self.unheard = None     # since when it does not hear it
        self.asked = 0.0
        self.hangs = None       # since when
        self.leads = None       # Coordinator

    def silent(self):
        """Whether the coordinator has noticed that it hangs."""
        return self.hangs is not None and time.monotonic() - self.hangs > LOST_AFTER


class Coordinator:
    """What a worker knows because it coordinates."""

    def __init__(self, term):
        self.term, self.since = term, time.monotonic()
        self.met = {}           # Worker by index, also those that are lost
        self.registered = None
        self.have, self.plan = 0, None
        self.applied, self.lost, self.switch = 0, [], None
        self.sequence = 0
        self.measured = False   # the profile


class KeptControl:
    """A Control with one connection for all calls: handshakes are most of their cost."""

    def __init__(self, control):
        self.control, self.port, self.connection = control, None, None

    def __call__(self, method, call, token, body=None):
        for fresh in (self.connection is None or self.port != self.control.port(), True):
            if fresh:
                self.close()
                self.port = self.control.port()
                self.connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.control.context, timeout=15)
            try:
                return self.control.once(self.connection, method, call, token, body)
            except (OSError, http.client.HTTPException):
                self.close()
                if fresh:
                    break
        return 0, {}, {}

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class RecoveringWorkers(Workers):
    def __init__(self, plane, namespace, job, control_port, total_steps=10000):
        super().__init__(plane, namespace, job, control_port, total_steps, fail_at=0)
        self.all = {}               # Worker by pod uid
        self.held = set()           # worker indices whose new pods do not start yet
        self.slow = set()           # pod uids whose next process does nothing until it is said
        self.finish = False         # the last steps may be done
        self.told = set()           # (term, pod uid) that the operator has answered to workers
        self.revision, self.incarnation, self.boots = 0, 0, {}   # of the generation that trains or has trained last
        self.ranks = set()          # its pod uids
        self.operator = None

    # --- for the story ------------------------------------------------------------------------------------------------

    def chief(self):
        leading = [w for w in self.all.values() if w.leads and w.hangs is None]
        return max(leading, key=lambda w: w.leads.term, default=None)

    def restart_in_place(self, worker, code=137):
        """As a kubelet that starts the container again: another process in the same pod."""
        self.restarts[worker.uid] = self.restarts.get(worker.uid, 0) + 1
        ended = {"exitCode": code, "reason": "Error", "startedAt": now(), "finishedAt": now()}
        state = {**self.trainer(worker.pod, True, {"running": {"startedAt": now()}}), "lastState": {"terminated": ended}}
        self.all.pop(worker.uid, None)   # before anybody sees it
        self.set_status(worker.pod, {"containerStatuses": [state]})

    def leave(self, worker, evicted):
        """As an eviction, or as a user who deletes the pod: it gets a grace, and ends when it is relieved."""
        if evicted:
            self.set_status(worker.pod, {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                                                         "lastTransitionTime": now()}]})
        self.plane.api("DELETE", self.path(worker.pod), {"gracePeriodSeconds": GRACE, "preconditions": {"uid": worker.uid}})

    # --- kubelet ------------------------------------------------------------------------------------------------------

    def still_leaves(self, pod):
        """Whether a pod that is being deleted works on: it has a rank that nobody has taken over yet, and its grace is not over. A
        coordinator does not wait for that: no plan is made without it while it coordinates."""
        worker = self.all.get(pod["metadata"]["uid"])
        if worker is None or worker.hangs is not None or self.done or worker.uid not in self.ranks or pod["status"].get("phase") != "Running":
            return False
        patience = RESIGNS if worker.leads else GRACE
        return time.time() < seconds_of(pod["metadata"]["deletionTimestamp"]) - pod["metadata"]["deletionGracePeriodSeconds"] + patience

    def kubelets(self, pods):
        """Starts and ends containers; the pods whose containers run."""
        running = []
        for pod in pods:
            meta, phase = pod["metadata"], pod["status"].get("phase", "Pending")
            self.seen[meta["uid"]] = meta["name"]
            if "deletionTimestamp" in meta and pod["spec"].get("nodeName"):
                if self.still_leaves(pod):
                    running.append(pod)
                    continue
                try:
                    if phase == "Running":
                        self.end_pod(pod, 143)
                    self.plane.api("DELETE", self.path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
                except ApiError:
                    pass
            elif phase == "Pending" and not pod["spec"].get("schedulingGates"):
                if int(meta["labels"]["weir.dev/worker-index"]) not in self.held:
                    self.run_pod(pod)
            elif phase == "Running" and not any("terminated" in c.get("state", {}) for c in pod["status"].get("containerStatuses", [])):
                running.append(pod)
        return running

    def step(self):
        running = self.kubelets(self.pods())
        if self.done:
            return True
        uids = {pod["metadata"]["uid"] for pod in running}
        for uid in set(self.all) - uids:
            self.all.pop(uid, None)
        for pod in running:
            uid = pod["metadata"]["uid"]
            if uid not in self.all:
                self.all[uid] = Worker(pod, self.restarts.get(uid, 0))
                self.all[uid].hangs = time.monotonic() if uid in self.slow else None
            self.all[uid].pod = pod
        if self.operator is None:
            found = self.control()
            self.operator = found and KeptControl(found)
        if self.operator is not None:
            for worker in self.alive():
                self.follow(worker)
            for worker in self.alive():
                if worker.leads:
                    self.lead(worker, worker.leads)
        return self.done

    def alive(self):
        return sorted((w for w in list(self.all.values()) if w.hangs is None), key=lambda w: w.index)

    # --- workers ------------------------------------------------------------------------------------------------------

    def call(self, worker, method, call, body=None):
        code, answer, headers = self.operator(method, call, self.token(worker.pod), body)
        if code not in (200, 202, 304):
            self.codes.append((worker.name, call.split("?")[0], code))
        if code == 421 and worker.leads and int(headers["Weir-Term"]) > worker.leads.term:
            worker.leads, worker.unheard = None, time.monotonic() - UNHEARD   # it asks who coordinates, by a claim
        return code, answer

    def follow(self, worker):
        at = time.monotonic()
        if worker.follows is None:
            if at - worker.asked >= 0.5:
                self.ask_who(worker, None)
            return
        chief, term = self.all.get(worker.follows[0]), worker.follows[1]
        if chief and chief.hangs is None and chief.leads and chief.leads.term == term:
            worker.unheard = None
            chief.leads.met[worker.index] = worker
            return
        worker.unheard = worker.unheard or at
        if at - worker.unheard >= UNHEARD and at - worker.asked >= CLAIM_EVERY:
            self.ask_who(worker, term)

    def ask_who(self, worker, lost_term):
        worker.asked = time.monotonic()
        body = {"jobUid": worker.pod["metadata"]["labels"]["weir.dev/job-uid"], "pod": worker.name, "podUid": worker.uid, "workerIndex": worker.index,
                "attempt": worker.attempt, "protocol": {"min": 1, "max": 1}}
        if lost_term is not None:
            body["lostTerm"] = lost_term
        code, answer = self.call(worker, "POST", "/join", body)
        place = answer.get("coordinator") if code == 200 else None
        if not place or (worker.follows and place["term"] < worker.follows[1]):
            return   # nobody is named, or this replica of the operator is behind
        worker.follows = (place["podUid"], place["term"])
        self.told.add((place["term"], place["podUid"]))
        if place["podUid"] == worker.uid and (not worker.leads or worker.leads.term != place["term"]):
            worker.leads = Coordinator(place["term"])

    def lead(self, worker, lead):
        here = {w.uid: w for w in lead.met.values() if self.all.get(w.uid) is w and not w.silent() and w.follows == (worker.uid, lead.term)}
        env = worker.pod["spec"]["containers"][0]["env"]
        wanted = int(next(e["value"] for e in env if e["name"] == "WEIR_WORKERS"))
        if not self.revision and sum(w.index < FIRST_SPARE for w in here.values()) < wanted:
            return
        if len(here) < len(self.alive()) and time.monotonic() - lead.since < TAKES_UP:
            return
        met = [lead.met[index] for index in sorted(lead.met)]
        if lead.registered != [w.uid for w in met] and not self.register_met(worker, lead, met):
            return
        code, plan = self.call(worker, "GET", f"/plan?have={lead.have}&wait=0")
        if code == 200 and plan["revision"] > lead.have:
            lead.have, lead.plan = plan["revision"], plan
        if lead.plan:
            self.take_up(lead, here)
        code = self.report_of(worker, lead, met, here)
        if code == 428:
            lead.registered = None
        if code == 202 and self.finish and self.steps >= self.total_steps and self.applied_in_status():
            others = [w for w in self.all.values() if w is not worker]
            for one in [*others, worker]:   # the coordinator is the last one
                self.end_pod(one.pod, 0)
            self.done = True

    def take_up(self, lead, here):
        """The newest plan with the ranks that are there; without replicas that lack one, where another one has all of its own."""
        plan = lead.plan
        lost = sorted({r["replica"] for r in plan["ranks"] if r["podUid"] not in here})
        known = self.revision == plan["revision"]
        if lost and (not known or len(lost) == len(plan["microBatches"])):
            return
        boots = {r["podUid"]: here[r["podUid"]].boot for r in plan["ranks"] if r["podUid"] in here}
        if lead.applied != plan["revision"] or lost != lead.lost or boots != self.boots:
            self.incarnation = self.incarnation + 1 if known else 0
            self.revision = self.applied = lead.applied = plan["revision"]
            self.boots, lead.lost, self.ranks = boots, lost, set(boots)
            lead.switch = {"revision": plan["revision"], "outcome": "Applied", "step": self.steps, "state": "Keep", "incarnation": self.incarnation}
        if any(here[uid].hangs is not None for uid in self.boots):
            return
        self.steps = self.total_steps if self.finish else min(self.steps + 2, self.total_steps - 20)

    def register_met(self, worker, lead, met):
        members = [{"pod": w.name, "podUid": w.uid, "workerIndex": w.index, "ips": [w.pod["status"]["podIP"]], "node": w.pod["spec"]["nodeName"],
                    "planVersion": 4, "ranks": [{"device": "cpu", "memoryBytes": 1 << 30}]} for w in met]
        body = {"jobUid": worker.pod["metadata"]["labels"]["weir.dev/job-uid"], "members": members,
                "model": {"name": "mlp", "layers": LAYERS, "digest": "sha256:0"}}
        # Those that have a stage are not asked to measure.
        lead.measured = lead.measured or any(self.boots.get(w.uid) != w.boot for w in met)
        if lead.measured:
            body["profile"] = profile()
        code, _ = self.call(worker, "POST", "/register", body)
        if code == 202:
            lead.registered, lead.sequence = [w.uid for w in met], 0
        return code == 202

    def report_of(self, worker, lead, met, here):
        lead.sequence += 1
        members = []
        for w in met:
            one = {"pod": w.name, "podUid": w.uid, "ready": bool(lead.applied) and w.uid in here and w.uid in self.ranks, "stepSeconds": 0.1}
            if w.silent() and self.all.get(w.uid) is w:
                one["silentSeconds"] = time.monotonic() - w.hangs
            members.append(one)
        body = {"jobUid": worker.pod["metadata"]["labels"]["weir.dev/job-uid"], "sequence": lead.sequence, "planRevision": lead.applied,
                "incarnation": self.incarnation if lead.applied else 0, "step": self.steps, "totalSteps": self.total_steps, "samplesPerSecond": 10.0, "loss": 2.0,
                "members": members, "lostReplicas": lead.lost}
        if lead.switch:
            body["lastSwitch"] = lead.switch
        return self.call(worker, "POST", "/report", body)[0]
