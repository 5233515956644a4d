# SPDX-License-Identifier: Apache-2.0
"""What goes away while a job trains: the operator, Prometheus, a worker. One job serves all cases of this file."""
import jobs
import lab
import panels
from lab import check

STEPS = 5000


def trainer_pods(namespace):
    return {p["metadata"]["name"]: (p["metadata"]["uid"], p["status"]["phase"]) for p in lab.pods(namespace, "weir.dev/job-name=gpt")}


def wait_steps(namespace, count, timeout):
    """Waits until `count` more steps are reported by the workers themselves (the operator may be away)."""
    address = lab.stage_pods(namespace, lab.job(namespace, "gpt"))[0][1]

    def step():
        return max(value for name, _, value in lab.scrape(address) if name == "weir_step")
    begin = step()
    lab.wait_until(f"{count} steps after {begin:.0f}", lambda: step() >= begin + count, timeout)


def operator_pods():
    return [p["metadata"]["name"] for p in lab.pods("weir-system", "app.kubernetes.io/name=weir-operator")
            if "deletionTimestamp" not in p["metadata"]]


def test_job_runs(namespace):
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020)), namespace=namespace)
    lab.apply(jobs.gpt_job("gpt", STEPS), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/gpt", "--timeout=120s", timeout=130)
    wait_steps(namespace, 3, 120)


def test_link_measurements_arrive(namespace):
    lab.wait_until("NetworkMetricsAvailable=True/Fresh", lambda: lab.condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable")["status"] == "True",
                   60, show=lambda: lab.show_condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable"))


def test_each_panel_of_the_dashboards_has_data(namespace):
    wait_steps(namespace, 20, 120)   # whole windows of rates
    return panels.check_panels(namespace, "gpt")


def test_training_goes_on_without_the_operator(namespace):
    before = trainer_pods(namespace)
    lab.kubectl("-n", "weir-system", "scale", "deployment/weir-operator", "--replicas=0")
    lab.wait_until("operator is gone", lambda: not lab.pods("weir-system", "app.kubernetes.io/name=weir-operator"), 60)
    wait_steps(namespace, 20, 180)
    check(trainer_pods(namespace) == before, f"pods changed: {before} -> {trainer_pods(namespace)}")


def test_returning_operator_creates_no_pod(namespace):
    before = trainer_pods(namespace)
    lab.kubectl("-n", "weir-system", "scale", "deployment/weir-operator", "--replicas=1")
    lab.kubectl("-n", "weir-system", "rollout", "status", "deployment/weir-operator", "--timeout=90s")
    step = lab.step_of(namespace, "gpt")
    lab.wait_until("progress is reported again", lambda: lab.step_of(namespace, "gpt") > step, 180)
    check(trainer_pods(namespace) == before, f"pods changed: {before} -> {trainer_pods(namespace)}")
    check(lab.job(namespace, "gpt")["status"].get("restarts", 0) == 0, "the job was restarted")


def test_killed_operator_pod_still_retunes(namespace):
    before = trainer_pods(namespace)
    [pod] = operator_pods()
    lab.kubectl("-n", "weir-system", "delete", "pod", pod, "--grace-period=0", "--force")
    lab.wait_until("a new operator pod is ready", lambda: operator_pods() not in ([], [pod]) and lab.condition(
        lab.get(f"/api/v1/namespaces/weir-system/pods/{operator_pods()[0]}"), "Ready")["status"] == "True", 60)
    stages = lab.stage_pods(namespace, lab.job(namespace, "gpt"))
    lab.share_link("60mbit", stages[1], stages[2])   # 123 kB take 17 ms, a backward 20 ms
    lab.wait_until("k above 1", lambda: lab.plan_of(lab.job(namespace, "gpt")).get("k", 1) > 1, 120,
                   show=lambda: str(lab.plan_of(lab.job(namespace, "gpt"))) + lab.show_condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable"))
    lab.wait_until("the new plan is applied", lambda: lab.plan_of(lab.job(namespace, "gpt")).get("appliedRevision")
                   == lab.plan_of(lab.job(namespace, "gpt")).get("revision"), 60)
    check(trainer_pods(namespace) == before, f"pods changed: {before} -> {trainer_pods(namespace)}")
    return f"k = {lab.plan_of(lab.job(namespace, 'gpt'))['k']}"


def test_without_prometheus_the_plan_stays(namespace):
    lab.kubectl("-n", "monitoring", "scale", "deployment/prometheus", "--replicas=0")
    lab.wait_until("NetworkMetricsAvailable=False", lambda: lab.condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable")["status"] == "False",
                   90, show=lambda: lab.show_condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable"))
    revision = lab.plan_of(lab.job(namespace, "gpt"))["revision"]
    stages = lab.stage_pods(namespace, lab.job(namespace, "gpt"))
    lab.clear_links(stages[1][0], stages[2][0])
    wait_steps(namespace, 20, 180)
    check(lab.plan_of(lab.job(namespace, "gpt"))["revision"] == revision, "the plan changed without measurements")
    lab.kubectl("-n", "monitoring", "scale", "deployment/prometheus", "--replicas=1")
    lab.wait_until("NetworkMetricsAvailable=True again", lambda: lab.condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable")["status"] == "True",
                   120, show=lambda: lab.show_condition(lab.job(namespace, "gpt"), "NetworkMetricsAvailable"))


def test_killed_worker_is_replaced_and_training_resumes(namespace):
    before = trainer_pods(namespace)
    node, _, victim = lab.stage_pods(namespace, lab.job(namespace, "gpt"))[2]
    lab.kill_container(node, lab.get(f"/api/v1/namespaces/{namespace}/pods/{victim}"))
    lab.wait_until("restarts counted", lambda: lab.job(namespace, "gpt")["status"].get("restarts", 0) >= 1, 90)
    lab.wait_until("all workers are back", lambda: lab.condition(lab.job(namespace, "gpt"), "Ready")["reason"] == "Running"
                   and lab.job(namespace, "gpt")["status"].get("workersSummary") == "4/4", 180, show=lambda: lab.show_condition(lab.job(namespace, "gpt"), "Ready"))
    wait_steps(namespace, 5, 180)
    # The operator tells of it with the workers' next report, which may come after these steps.
    last = lab.wait_until("the recovery is told", lambda: lab.job(namespace, "gpt")["status"].get("recovery", {}).get("last"), 60)
    status = lab.job(namespace, "gpt")["status"]
    after = trainer_pods(namespace)
    check((status["restarts"], status.get("restartBudgetUsed", 0)) == (1, 0),
          f"{status['restarts']} restarts, budget used {status.get('restartBudgetUsed')}, for one kill that the copies make good")
    survivors = {name: value for name, value in before.items() if name != victim}
    check(all(after.get(name, ("", ""))[0] == uid for name, (uid, _) in survivors.items()), f"survivors changed: {before} -> {after}")
    check(last.get("source") == "Copies" and not lab.events(namespace, "ProgressLost", "gpt"), f"not from the copies that workers hold: {last}")


def cleanup(_):
    lab.clear_links("n1", "n2", "n3", "n4")
    lab.kubectl("-n", "weir-system", "scale", "deployment/weir-operator", "--replicas=1")
    lab.kubectl("-n", "monitoring", "scale", "deployment/prometheus", "--replicas=1")
