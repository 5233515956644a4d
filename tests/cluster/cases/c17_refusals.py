# SPDX-License-Identifier: Apache-2.0
"""What the real API server refuses, a full quota above all, is told on the job in its own words, stops no deadline and holds no pods for ever."""
import jobs
import lab
from lab import check


def quota(namespace, pods):
    lab.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": str(pods)}}}, namespace=namespace)
    seen = lambda: lab.kubectl("-n", namespace, "get", "resourcequota", "q", "-o", "jsonpath={.status.hard.pods}") == str(pods)  # noqa: E731
    lab.wait_until("the quota holds", seen, 30)


def conditions(namespace, name):
    return {c["type"]: c for c in lab.job(namespace, name).get("status", {}).get("conditions", [])}


def told(namespace, name, kind, reason):
    return lambda: conditions(namespace, name).get(kind, {}).get("reason") == reason


def test_a_full_quota_is_told_and_the_deadline_counts(namespace):
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.005, 0.010)), namespace=namespace)
    quota(namespace, 3)
    lab.apply(jobs.gpt_job("half", 100, micro_batches=8, activeDeadlineSeconds=30), namespace=namespace)
    lab.wait_until("QuotaExceeded in PodsScheduled", told(namespace, "half", "PodsScheduled", "QuotaExceeded"), 20)
    message = conditions(namespace, "half")["PodsScheduled"]["message"]
    check("1 of 4 pods are missing" in message and "exceeded quota: q" in message, message)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Finished", "ppj/half", "--timeout=60s", timeout=70)
    failed = conditions(namespace, "half")["Failed"]
    check(failed["reason"] == "DeadlineExceeded", str(failed))
    lab.kubectl("-n", namespace, "delete", "ppj", "half", "--wait=true", "--timeout=60s", timeout=70)


def test_two_jobs_under_a_quota_for_one_both_end(namespace):
    lab.wait_until("no pod is left", lambda: not lab.pods(namespace), 90)
    quota(namespace, 6)
    names = ("one", "two")
    lab.apply(*(jobs.gpt_job(name, 20, micro_batches=8, scheduling={"timeoutSeconds": 20}) for name in names), namespace=namespace)
    for name in names:
        lab.kubectl("-n", namespace, "wait", "--for=condition=Finished", f"ppj/{name}", "--timeout=300s", timeout=310)
        complete = conditions(namespace, name)["Complete"]
        check(complete["status"] == "True", f"{name}: {conditions(namespace, name)['Failed']}")
