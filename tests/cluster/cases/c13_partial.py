# SPDX-License-Identifier: Apache-2.0
"""sync.mode Partial: two replicas of two stages, one of them on a node twice as slow; what the dashboards show of it; a worker that
is killed; and Exact again, while the job runs."""
import json

import jobs
import lab
import panels
from lab import check

SLOW_NODE = "n4"
FORWARD, BACKWARD = 0.010, 0.020   # seconds of two layers; a stage has four
NAME = "apart"


namespace_of_case = ""   # set by the first test


def job():
    return lab.job(namespace_of_case, NAME)


def show():
    return f"{lab.show_condition(job(), 'Ready')}; {lab.show_condition(job(), 'Degraded')}; sync {job()['status'].get('sync')}"


def addresses():
    """{replica: address} of the first stages."""
    return {r["replica"]: r["ip"] for r in lab.plan_document(namespace_of_case, job())["ranks"] if r["stage"] == 0}


def value(address, name, labels=""):
    return next((v for n, text, v in lab.scrape(address) if n == name and labels in text), None)


def own_steps():
    """Steps that each replica did itself; one that is slower goes on at the step of the others."""
    return {replica: value(address, "weir_iteration_seconds_count") for replica, address in addresses().items()}


def applied(mode):
    plan = lab.plan_of(job())
    document = lab.plan_document(namespace_of_case, job())
    return plan.get("appliedRevision") == plan["revision"] and document["sync"]["mode"] == mode


def test_a_slow_replica_does_fewer_steps_and_holds_nobody(namespace):
    global namespace_of_case
    namespace_of_case = namespace
    lab.apply(*jobs.replicas_maps(SLOW_NODE, FORWARD, BACKWARD), namespace=namespace)
    # It validates for the dashboards' sake: a curve of the loss panel is that of validations.
    body = jobs.replicas_job(NAME, 2, 100000, args=jobs.validation(20, 8), times=jobs.PER_NODE)
    body["spec"]["sync"] = {"mode": "Partial"}
    lab.apply(body, namespace=namespace)
    lab.wait_until("2 replicas that average", lambda: lab.plan_of(job()).get("revision") and applied("Partial"), 150, show=show)
    lab.wait_until("40 steps", lambda: max(own_steps().values()) >= 40, 120, show=show)
    done = own_steps()
    slow, fast = sorted(done.values())
    check(slow <= 0.75 * fast, f"own steps of the replicas: {done}; one has a stage that takes twice as long")
    lab.wait_until("status.sync", lambda: (job()["status"].get("sync") or {}).get("meanGroupSize"), 30, show=show)
    sync = job()["status"]["sync"]
    check(sync["mode"] == "Partial" and 1 <= float(sync["meanGroupSize"]) <= 2 and float(sync["maxStaleness"]) <= 7, f"sync {sync}")
    check(sum(sync["microBatchShares"]) == 16, f"sync {sync}")
    return f"own steps {done}; sync {sync}"


def test_each_panel_of_the_dashboards_has_data(namespace):
    return panels.check_panels(namespace, NAME, "replicas", "partial")


def test_the_others_go_on_while_a_lost_worker_comes_back(namespace):
    ranks = lab.plan_document(namespace, job())["ranks"]
    [victim] = [r["pod"] for r in ranks if (r["replica"], r["stage"]) == (1, 1)]
    pod = lab.get(f"/api/v1/namespaces/{namespace}/pods/{victim}")
    before = own_steps()[0]
    lab.kill_container(pod["spec"]["nodeName"], pod)
    lab.wait_until("20 steps of the other replica", lambda: own_steps()[0] >= before + 20, 60, show=show)
    last = lab.wait_until("the worker joins again", lambda: job()["status"].get("recovery", {}).get("last"), 90, show=show)
    check(last["source"] == "Peers", f"{last}")
    back = own_steps()
    lab.wait_until("both replicas go on", lambda: all(n >= back[r] + 5 for r, n in own_steps().items()), 60, show=show)
    status = job()["status"]
    check(status.get("restarts") == 1, f"{status.get('restarts')} restarts for one kill")
    check(not lab.events(namespace, "ProgressLost", NAME), "event ProgressLost although a replica went on")


def test_exact_again_without_a_pause(namespace):
    revision, restarts = lab.plan_of(job())["revision"], job()["status"].get("restarts", 0)
    lab.kubectl("-n", namespace, "patch", "ppj", NAME, "--type=merge", "-p", json.dumps({"spec": {"sync": {"mode": "Exact"}}}))
    lab.wait_until("a plan with exact sums", lambda: lab.plan_of(job())["revision"] > revision and applied("Exact"), 60, show=show)
    first = own_steps()
    lab.wait_until("ten more steps of each", lambda: min(n - first[r] for r, n in own_steps().items()) >= 10, 60, show=show)
    last = own_steps()
    gone = [last[r] - first[r] for r in sorted(last)]
    check(abs(gone[0] - gone[1]) <= 1, f"steps since Exact: {gone}")
    check(job()["status"].get("restarts", 0) == restarts, "restarts")
    bound = f'weir_job_plan_bound_percent{{pipeline_namespace="{namespace}",pipeline_job="{NAME}"}}'
    lab.wait_until("how far the step is above the bound", lambda: lab.prometheus(bound), 60, show=show)
    return lab.events(namespace, "SyncPolicyChanged", NAME)[-1]["note"]
