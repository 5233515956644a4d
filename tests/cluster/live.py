# SPDX-License-Identifier: Apache-2.0
"""What demos share: a cluster with everything installed, and a job followed step by step while things happen to it."""
import collections
import re
import statistics
import time

import jobs
import lab
from lab import check, say

MIN_STEPS = 20               # of a phase, unless it asks for others
OF_A_TIER = "next not before"   # words of a PlanOutcome of tiers regroup and replace
LINE_SECONDS = 4             # between two lines about a phase that lasts
LOOK_SECONDS = 2             # between two looks at the job's plan


class Watch:
    """A job's steps: `times[i]` seconds under the plan of revision `revisions[i]`, in order."""

    def __init__(self, namespace, name):
        self.namespace, self.name = namespace, name
        self.times, self.revisions = [], []
        self.first_loss = self.loss = None
        self.k = self.revision = 0
        self.last_change = time.monotonic()
        self._sum = self._count = None
        self._shown = self._looked = 0.0
        self.stages, self._attached = [], None
        self._attach()
        self.poll("")

    def job(self):
        return lab.job(self.namespace, self.name)

    def details(self):
        """What a live line says besides step, time, k, plan and loss."""
        return ""

    def _attach(self):
        """The pods of replica 0 by the plan in force; another cut may have another first stage, with counters of its own."""
        self._looked, thing, before = time.monotonic(), self.job(), self.stages[:1]
        plan = lab.plan_of(thing)
        if plan["revision"] == self._attached or (self.stages and plan.get("appliedRevision") != plan["revision"]):
            return
        self._attached, self.stages = plan["revision"], lab.stage_pods(self.namespace, thing)
        if self.stages[:1] != before:
            self._sum = self._count = None

    def _scrape(self, stage):
        try:
            return [(name, value) for name, _, value in lab.scrape(self.stages[stage][1]) if not name.endswith("_bucket")]
        except OSError:
            return []   # its pod is gone, or too busy to answer now

    def poll(self, label):
        """One look at the workers; adds the steps that ended since the last one."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._attach()
        first = dict(self._scrape(0))
        if first:
            self._add(first)
        losses = [value for name, value in self._scrape(-1) if name == "weir_loss" and value == value and value > 0]
        if losses:
            self.loss = losses[0]
            self.first_loss = self.first_loss or self.loss
        if label and time.monotonic() - self._shown > LINE_SECONDS:
            self._shown = time.monotonic()
            recent = statistics.median(self.times[-3:]) if self.times else 0
            say(f"{label:<18} step {self._count or 0:4.0f}  {recent * 1000:5.0f} ms  k={self.k}  plan {self.revision}  "
                f"loss {self.loss or 0:.2f}  {self.details()}".rstrip())
        time.sleep(0.25)

    def _add(self, first):
        total, count = first.get("weir_iteration_seconds_sum", 0.0), first.get("weir_iteration_seconds_count", 0.0)
        if self._count is not None and count > self._count:
            ended = int(count - self._count)
            self.times += [(total - self._sum) / ended] * ended
            self.revisions += [self.revision] * ended   # in force when the step was last seen under way
        self._sum, self._count = total, count
        k, revision = int(first.get("weir_plan_k", 0)), int(first.get("weir_plan_epoch", 0))
        if (k, revision) != (self.k, self.revision):
            self.k, self.revision, self.last_change = k, revision, time.monotonic()

    def until(self, label, what, condition, timeout):
        """Polls until the condition gives something true, which is returned."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            check(time.monotonic() < deadline, f"{label}: not within {timeout} s: {what}; job: {lab.show_condition(self.job(), 'Ready')}, "
                                               f"{lab.show_condition(self.job(), 'NetworkMetricsAvailable')}, plan {lab.plan_of(self.job())}")
            self.poll(label)
        return value

    def steps(self, label, count=MIN_STEPS):
        """The times of so many whole steps from now on."""
        begin = len(self.times) + 1   # the step under way belongs to nobody
        self.until(label, f"{count} steps", lambda: len(self.times) >= begin + count, 60 + 10 * count)
        return self.times[begin:begin + count]

    def note_of(self, reason, part=""):
        """Of the newest event with this reason and these words; "" without one."""
        found = [event["note"] for event in lab.events(self.namespace, reason, self.name) if part in event["note"]]
        return found[-1] if found else ""


Regrouped = collections.namedtuple("Regrouped", "node slow note fast outcome")


def take_port(watch, rate):
    """The port of the second stage's node is slow from now on; waits until layers have moved and that is judged.

    Gives the node, the times of whole steps with the slow port and of ten after the move, and the texts of both events.
    """
    node = watch.stages[1][0]
    lab.script("shape.sh", node, "rate", rate)
    begin = len(watch.times) + 1   # the step under way saw both
    note = watch.until("port taken", "event PlanRegrouped", lambda: watch.note_of("PlanRegrouped"), 180)
    revision = lab.plan_of(watch.job())["revision"]
    slow = [seconds for seconds, of in list(zip(watch.times, watch.revisions))[begin:] if of < revision]
    check(slow, f"no whole step between the slow port and the regroup: {watch.times}, {note}")
    fast = watch.steps("regrouped", 10)
    outcome = watch.until("regrouped", "event PlanOutcome", lambda: watch.note_of("PlanOutcome", OF_A_TIER), 150)
    return Regrouped(node, slow, note, fast, outcome)


def gains(note):
    """(predicted for the network of now, measured) of an event's text, as parts of a step."""
    shown = (float(re.search(rf"{word}(?: for this network)? ([+-][\d.]+) %", note).group(1)) / 100 for word in ("predicted", "measured"))
    return tuple(gain / (1 + gain) for gain in shown)  # events show gains in throughput


def set_up(namespace, reuse):
    """The cluster with Prometheus and the operator, and an empty namespace."""
    jobs.text_file()   # while this process still is in the machine's network
    lab.start(reuse=reuse)
    lab.install_prometheus()
    say("helm install weir")
    lab.install_chart()
    lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
    lab.wait_until("default service account", lambda: lab.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"), 20)
    lab.clear_links("n1", "n2", "n3", "n4")
    lab.kubectl("-n", namespace, "delete", "ppj,pod", "--all", "--ignore-not-found", "--timeout=60s")


def submit(namespace, job, text):
    """kubectl apply, until it trains. text: what the job is."""
    name = job["metadata"]["name"]
    say(f"kubectl apply: PipelineJob {namespace}/{name}: {text}")
    lab.apply(job, namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"ppj/{name}", "--timeout=180s", timeout=190)
    print(lab.kubectl("-n", namespace, "get", f"ppj/{name}"), flush=True)


def pods_now(namespace, name):
    """Name, uid and restarts of each pod of the job: the same later, if none was made again."""
    return sorted((p["metadata"]["name"], p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"])
                  for p in lab.pods(namespace, f"weir.dev/job-name={name}"))


def print_events(namespace, name):
    print(f"\nEvents of job {name}:")
    for event in lab.events(namespace, name=name):
        if event["reason"].startswith(("Plan", "Network")):
            print(f"  {event['reason']:<18} {event.get('note', '')}")


def print_claims(claims):
    """claims: (holds, text with its numbers). Returns how many do not hold."""
    print("\nClaims:")
    for holds, text in claims:
        print(f"  {'ok  ' if holds else 'FAIL'} {text}")
    return sum(not holds for holds, _ in claims)


def run(namespace, name, keep, show):
    """show() with the cluster of a demo, whose exit code this gives; ends the cluster unless it is kept. name: of the job."""
    begin = time.monotonic()
    try:
        wrong = show()
    except lab.Failure:
        for arguments in (("-n", namespace, "get", "pods", "-o", "wide"), ("-n", namespace, "describe", "ppj"),
                          ("-n", namespace, "logs", "-l", "weir.dev/job-name", "--tail=15", "--prefix"),
                          ("-n", "weir-system", "logs", "-l", "app.kubernetes.io/name=weir-operator", "--tail=60")):
            try:
                done = lab.kubectl(*arguments, ok=None)
                print(done.stdout or done.stderr, flush=True)
            except lab.Failure:
                pass   # the cluster itself did not start
        raise
    finally:
        if keep and lab.is_up():
            print(f"\nThe cluster is up. Look around:\n  tests/cluster/kubectl -n {namespace} get ppj -o wide\n"
                  f"  tests/cluster/kubectl -n {namespace} describe ppj {name}\n"
                  f"  tests/cluster/kubectl -n {namespace} logs -f -l weir.dev/job-name={name} --prefix\n"
                  "  tests/cluster/kubectl -n weir-system logs deployment/weir-operator\n"
                  "  tests/cluster/shape.sh n2 rate 100mbit        (n2 receives at most this; clear ends it)\n"
                  "  tests/cluster/down.sh                         (ends everything)")
        else:
            lab.stop()
    say(f"{'all claims hold' if not wrong else f'{wrong} claims do not hold'}; {(time.monotonic() - begin) / 60:.1f} min")
    return 1 if wrong else 0
