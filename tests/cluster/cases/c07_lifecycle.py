# SPDX-License-Identifier: Apache-2.0
"""Suspend and resume, a worker killed, wrong options: with checkpoints on a volume that all nodes share."""

import jobs
import lab
from lab import check

STEPS = 60
LONG = {"test_killed_worker_costs_no_more_than_the_last_checkpoint"}   # a normal run has the killed worker of c03
CHECKPOINTS = lab.STATE / "checkpoints"


def job(name):
    """The template mounts the claim, so each job has a folder of its own on it (a claim of `checkpoint` would be the folder)."""
    checkpoint = {"path": f"/ckpt/{name}", "intervalSteps": 10, "graceSeconds": 30}
    body = jobs.gpt_job(name, STEPS, micro_batches=8, args=[f"--loss-log=/ckpt/{name}.$(WEIR_POD_NAME).json"], checkpoint=checkpoint)
    body["spec"]["worker"]["volumes"].append({"name": "ckpt", "persistentVolumeClaim": {"claimName": "ckpt"}})
    body["spec"]["worker"]["volumeMounts"].append({"name": "ckpt", "mountPath": "/ckpt"})
    return body


def wait_step(namespace, name, step):
    """By the workers' own word: the status follows up to 15 s later."""
    lab.wait_until("an applied plan", lambda: lab.plan_of(lab.job(namespace, name)).get("appliedRevision"), 90,
                   show=lambda: lab.show_condition(lab.job(namespace, name), "Ready"))
    address = lab.stage_pods(namespace, lab.job(namespace, name))[0][1]
    lab.wait_until(f"step {step}", lambda: max((v for n, _, v in lab.scrape(address) if n == "weir_step"), default=0) >= step, 120)


def finish(namespace, name):
    lab.kubectl("-n", namespace, "wait", "--for=condition=Complete", f"ppj/{name}", "--timeout=240s", timeout=250)
    check(lab.step_of(namespace, name) == STEPS, f"step {lab.step_of(namespace, name)} instead of {STEPS}")


REFERENCE = {}


def reference(namespace):
    """Runs the uninterrupted job once; the first test that needs its losses waits."""
    if REFERENCE:
        return
    lab.shared_claim(namespace, "ckpt", CHECKPOINTS)
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020)), namespace=namespace)
    lab.apply(job("whole"), namespace=namespace)
    finish(namespace, "whole")
    REFERENCE.update(lab.losses(CHECKPOINTS, "whole"))
    check(len(REFERENCE) == STEPS, f"{len(REFERENCE)} losses were written")


def test_uninterrupted_job(namespace):
    reference(namespace)
    return f"loss {REFERENCE[min(REFERENCE)]} -> {REFERENCE[max(REFERENCE)]}"


def same_curve(name):
    seen = lab.losses(CHECKPOINTS, name)
    check(seen, "no losses were written")
    wrong = {step: (loss, REFERENCE.get(step)) for step, loss in seen.items() if loss != REFERENCE.get(step)}
    check(not wrong, f"losses differ from the uninterrupted job's: {dict(list(wrong.items())[:3])}")
    return f"{len(seen)} losses from step {min(seen)} on equal"


def test_suspend_and_resume_give_the_same_losses(namespace):
    reference(namespace)
    lab.apply(job("paused"), namespace=namespace)
    wait_step(namespace, "paused", 12)
    lab.kubectl("-n", namespace, "patch", "ppj/paused", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    lab.wait_until("Suspended=True", lambda: lab.condition(lab.job(namespace, "paused"), "Suspended")["status"] == "True"
                   and not lab.pods(namespace, "weir.dev/job-name=paused"), 90, show=lambda: lab.show_condition(lab.job(namespace, "paused"), "Suspended"))
    at = max(lab.losses(CHECKPOINTS, "paused"))
    check(at < STEPS - 10, f"suspended at step {at}")
    lab.kubectl("-n", namespace, "patch", "ppj/paused", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    finish(namespace, "paused")
    check(lab.job(namespace, "paused")["status"].get("restartBudgetUsed", 0) == 0, "suspending used the restart budget")
    check(not lab.events(namespace, "ProgressLost", "paused"), "event ProgressLost after a resume")
    return f"suspended at step {at}; {same_curve('paused')}"


def test_killed_worker_costs_no_more_than_the_last_checkpoint(namespace):
    reference(namespace)
    lab.apply(job("killed"), namespace=namespace)
    wait_step(namespace, "killed", 15)
    node, _, victim = lab.stage_pods(namespace, lab.job(namespace, "killed"))[1]
    lab.kill_container(node, lab.get(f"/api/v1/namespaces/{namespace}/pods/{victim}"))
    finish(namespace, "killed")
    status = lab.job(namespace, "killed")["status"]
    check((status["restarts"], status.get("restartBudgetUsed", 0)) == (1, 0),
          f"{status['restarts']} restarts, budget used {status.get('restartBudgetUsed')}, for one kill that the copies make good")
    check(not lab.events(namespace, "ProgressLost", "killed"), "event ProgressLost although there is a checkpoint")
    return same_curve("killed")


def test_wrong_option_fails_the_job_with_the_workers_words(namespace):
    body = job("wrong")
    arguments = body["spec"]["worker"]["args"]
    arguments[arguments.index(f"--model={jobs.MODEL}")] = "--model=gpt-huge"
    lab.apply(body, namespace=namespace)
    lab.wait_until("Failed=True", lambda: lab.condition(lab.job(namespace, "wrong"), "Failed")["status"] == "True", 90,
                   show=lambda: lab.show_condition(lab.job(namespace, "wrong"), "Failed"))
    failed = lab.condition(lab.job(namespace, "wrong"), "Failed")
    check(failed["reason"] == "ConfigurationError", f"reason {failed['reason']}: {failed['message']}")
    check("gpt-huge" in failed["message"], f"the message does not name the model: {failed['message']}")
    check(lab.job(namespace, "wrong")["status"].get("restarts", 0) == 0, "a wrong option was tried again")
    return failed["message"][:160]
