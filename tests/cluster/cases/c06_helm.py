# SPDX-License-Identifier: Apache-2.0
"""helm upgrade and uninstall while a job runs: no pod of the job notices."""
import jobs
import lab
from lab import check


def trainer_uids(namespace):
    return sorted((p["metadata"]["uid"], p["status"]["phase"], p["status"]["containerStatuses"][0]["restartCount"])
                  for p in lab.pods(namespace, "weir.dev/job-name=gpt"))


def advance(namespace, steps, timeout):
    begin = lab.step_of(namespace, "gpt")
    lab.wait_until(f"{steps} steps", lambda: lab.step_of(namespace, "gpt") >= begin + steps, timeout)


def test_upgrade_restarts_no_pod_of_a_running_job(namespace):
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020)), namespace=namespace)
    # Off: a retune on a busy machine would say nothing about the upgrade
    lab.apply(jobs.gpt_job("gpt", 5000, adaptation={"mode": "Off"}), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/gpt", "--timeout=120s", timeout=130)
    before = trainer_uids(namespace)
    revision = lab.plan_of(lab.job(namespace, "gpt"))["revision"]
    lab.install_chart("log.level=debug", replicas=2, scrape_interval="2s")
    advance(namespace, 10, 180)
    check(trainer_uids(namespace) == before, f"{before} -> {trainer_uids(namespace)}")
    check(lab.plan_of(lab.job(namespace, "gpt"))["revision"] == revision, "the upgrade made a new plan")


def test_uninstall_keeps_crd_job_and_training(namespace):
    before = trainer_uids(namespace)
    address = lab.stage_pods(namespace, lab.job(namespace, "gpt"))[0][1]
    lab.helm("uninstall", "weir", "-n", "weir-system", "--wait", "--timeout", "90s")
    check(lab.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pipelinejobs.weir.dev"), "the CRD is gone")
    check(lab.get(lab.job_path(namespace, "gpt")), "the job is gone")

    def step():
        return max(value for name, _, value in lab.scrape(address) if name == "weir_step")
    begin = step()
    lab.wait_until("10 steps without an operator", lambda: step() >= begin + 10, 120)
    check(trainer_uids(namespace) == before, f"{before} -> {trainer_uids(namespace)}")


def test_install_again_takes_the_job_over(namespace):
    before = trainer_uids(namespace)
    lab.install_chart(scrape_interval="2s")
    advance(namespace, 5, 180)
    check(trainer_uids(namespace) == before, f"{before} -> {trainer_uids(namespace)}")


def test_operator_with_a_job_is_smaller_than_40_megabytes(_):
    [pod] = [p for p in lab.pods("weir-system", "app.kubernetes.io/name=weir-operator") if "deletionTimestamp" not in p["metadata"]]
    megabytes = sum(v for n, _, v in lab.scrape(pod["status"]["podIP"], 8080) if n == "process_resident_memory_bytes") / 1e6
    check(megabytes < 40, f"RSS {megabytes:.1f} MB with one job")
    return f"RSS {megabytes:.1f} MB"
