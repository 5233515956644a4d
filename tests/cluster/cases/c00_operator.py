# SPDX-License-Identifier: Apache-2.0
"""The freshly installed operator: ready, small and quiet."""
import time

import lab
from lab import check

QUIET_SECONDS = 20


def operator_metric(name):
    [pod] = lab.pods("weir-system", "app.kubernetes.io/name=weir-operator")
    return sum(value for metric, _, value in lab.scrape(pod["status"]["podIP"], 8080) if metric == name)


def test_helm_made_a_ready_deployment(_):
    status = lab.get("/apis/apps/v1/namespaces/weir-system/deployments/weir-operator")["status"]
    check(status.get("readyReplicas") == 1, f"ready replicas: {status.get('readyReplicas')}")


def test_leads(_):
    lab.wait_until("leader_election_master_status = 1", lambda: operator_metric("leader_election_master_status") == 1, 30)
    lease = lab.get("/apis/coordination.k8s.io/v1/namespaces/weir-system/leases/weir-operator")
    check(lease and lease["spec"]["holderIdentity"].startswith("weir-operator-"), f"lease: {lease}")


def test_quiet_operator_uses_less_than_one_percent_of_a_core(_):
    begin, cpu = time.monotonic(), operator_metric("process_cpu_seconds_total")
    time.sleep(QUIET_SECONDS)   # the measured interval itself
    share = (operator_metric("process_cpu_seconds_total") - cpu) / (time.monotonic() - begin)
    check(share < 0.01, f"{100 * share:.2f} % of a core without any job")
    return f"{100 * share:.2f} %"


def test_quiet_operator_is_small(_):
    megabytes = operator_metric("process_resident_memory_bytes") / 1e6
    check(megabytes < 40, f"RSS {megabytes:.1f} MB without any job")
    return f"RSS {megabytes:.1f} MB"
