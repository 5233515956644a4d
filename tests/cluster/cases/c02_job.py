# SPDX-License-Identifier: Apache-2.0
"""A job from creation to Complete, as a user sees it with kubectl."""
import json

import jobs
import lab
from lab import check

STEPS = 100  # about 30 s: the columns show progress only after 15 s, and describe comes after them


def test_job_reaches_running(namespace):
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020)), namespace=namespace)
    body = jobs.gpt_job("gpt", STEPS, micro_batches=8, args=jobs.validation(40, 16))
    body["spec"]["adaptation"]["mode"] = "Observe"   # on a busy machine links are slow, and k = 2 is right; the columns expect 1
    lab.apply(body, namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/gpt", "--timeout=120s", timeout=130)
    job = lab.job(namespace, "gpt")
    check(lab.condition(job, "Ready")["reason"] == "Running", lab.show_condition(job, "Ready"))


def test_every_stage_has_a_node_of_its_own(namespace):
    places = lab.stage_pods(namespace, lab.job(namespace, "gpt"))
    check(len(places) == 4 and len({node for node, _, _ in places}) == 4, f"stages: {places}")


def test_printer_columns(namespace):
    lab.wait_until("a step in the status", lambda: lab.step_of(namespace, "gpt") > 0, 60)
    head, row = lab.kubectl("-n", namespace, "get", "ppj", "gpt").splitlines()
    check(head.split() == ["NAME", "STATE", "WORKERS", "K", "PLAN", "STEP", "SAMPLES/S", "LOSS", "AGE"], head)
    name, state, workers, k, plan, step, rate, loss, _ = row.split()
    check((name, workers, k) == ("gpt", "4/4", "1") and state in ("Running", "Complete"), row)
    check(int(plan) >= 1 and int(step) > 0 and float(rate) > 0 and float(loss) > 0, row)
    wide = lab.kubectl("-n", namespace, "get", "ppj", "-o", "wide").splitlines()[0].split()
    for column in ("REMAINING", "RESTARTS", "STAGES", "DP", "SYNC", "DEGRADED"):
        check(column in wide, f"no column {column} in {wide}")


def test_describe_of_the_running_job_shows_conditions_and_plan(namespace):
    text = lab.kubectl("-n", namespace, "describe", "ppj", "gpt")
    for word in ("Accepted", "AllScheduled", "AllReady", "training advances", "Applied Revision", "PlanCreated"):
        check(word in text, f"kubectl describe does not show {word!r}")


def test_job_completes(namespace):
    lab.kubectl("-n", namespace, "wait", "--for=condition=Complete", "ppj/gpt", "--timeout=180s", timeout=190)
    status = lab.job(namespace, "gpt")["status"]
    check(status["progress"]["step"] == STEPS, f"step {status['progress']['step']} instead of {STEPS}")
    check(status.get("restarts", 0) == 0, f"{status.get('restarts')} restarts")
    check(float(status["progress"]["loss"]) < 5.6, f"loss {status['progress']['loss']} (ln 256 = 5.55 without training)")


def test_describe_of_the_ended_job_shows_how_it_ended(namespace):
    text = lab.kubectl("-n", namespace, "describe", "ppj", "gpt")
    for word in ("Complete", "Succeeded", "PlanCreated", "Completed", f"all {STEPS} steps"):
        check(word in text, f"kubectl describe does not show {word!r}")


def test_ended_pods_keep_their_logs(namespace):
    # A worker that had not ended when the coordinator had is deleted as a running one; on a busy machine that takes some.
    lab.wait_until("all pods succeeded", lambda: all(p["status"]["phase"] == "Succeeded" for p in lab.pods(namespace)), 30)
    names = [p["metadata"]["name"] for p in lab.pods(namespace)]
    check("gpt-a100-0" in names, f"pods: {names}")
    validated = []
    for name in names:
        log = lab.kubectl("-n", namespace, "logs", name)
        check(log.strip(), f"no log of {name}")
        validated += [json.loads(line) for line in log.splitlines() if '"validated"' in line]
    losses = {line["step"]: line["loss"] for line in validated}
    check(list(losses) == [40, 80, STEPS] and len(validated) == 3, f"validated: {validated}")
    check(losses[STEPS] < losses[40] < 5.6, f"losses of validations: {losses}")


def test_objects_belong_to_the_job(namespace):
    uid = lab.job(namespace, "gpt")["metadata"]["uid"]
    for kind, name in (("services", "gpt"), ("configmaps", "gpt-control"), ("configmaps", "gpt-plan-1")):
        thing = lab.get(f"/api/v1/namespaces/{namespace}/{kind}/{name}")
        check(thing, f"no {kind}/{name}")
        owners = [o["uid"] for o in thing["metadata"].get("ownerReferences", [])]
        check(owners == [uid], f"{kind}/{name}: owners {owners}")


def test_deleting_the_job_deletes_everything(namespace):
    lab.kubectl("-n", namespace, "delete", "ppj", "gpt", "--timeout=60s")
    lab.wait_until("pods, service and config maps are gone", lambda: not lab.pods(namespace)
                   and not lab.get(f"/api/v1/namespaces/{namespace}/services/gpt")
                   and not lab.get(f"/api/v1/namespaces/{namespace}/configmaps/gpt-plan-1"), 60)
