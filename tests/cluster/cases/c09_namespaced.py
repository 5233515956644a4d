# SPDX-License-Identifier: Apache-2.0
"""The chart with Roles in one namespace only, in namespaces whose PodSecurity level is restricted; and `helm test`."""
import jobs
import lab
from lab import check

SYSTEM, OTHER = "weir-team", "t-c09-other"
STEPS = 30
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def job(name, *, secure):
    body = jobs.gpt_job(name, STEPS, text=False, micro_batches=8)
    if secure:   # what a user must set for this level
        for group in body["spec"]["workerGroups"]:
            group["template"]["spec"]["securityContext"] = POD_SECURITY
            group["template"]["spec"]["containers"][0]["securityContext"] = CONTAINER_SECURITY
    return body


def namespace_with(name, labels):
    lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


def operator_account():
    return lab.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/weir-operator")["spec"]["template"]["spec"]["serviceAccountName"]


def may(verb, resource, where):
    """Of the operator's account; `where`: a namespace, or None for the whole cluster."""
    scope = ["-n", where] if where else ["-A"]
    done = lab.kubectl("auth", "can-i", verb, resource, *scope, "--as", f"system:serviceaccount:{SYSTEM}:{operator_account()}", ok=None)
    return done.stdout.strip() == "yes"


def test_install_with_roles_in_one_namespace(namespace):
    lab.helm("uninstall", "weir", "-n", "weir-system", "--wait", "--timeout", "90s")
    namespace_with(SYSTEM, RESTRICTED)
    namespace_with(namespace, RESTRICTED)
    namespace_with(OTHER, {})
    # the CRD is still that of the release in weir-system: it is left as it is
    lab.install_chart(f"watchNamespaces={{{namespace}}}", scrape_interval="2s", namespace=SYSTEM)
    check(may("create", "pods", namespace), "the operator may not create pods where it works")
    for verb, resource in (("create", "pods"), ("list", "pods"), ("list", "secrets"), ("patch", "pipelinejobs.weir.dev/status")):
        check(not may(verb, resource, OTHER), f"the operator may {verb} {resource} in a namespace that is not its own")
        check(not may(verb, resource, None), f"the operator may {verb} {resource} everywhere")
    check(not may("list", "secrets", namespace), "the operator may list the secrets of a tenant")


def test_restricted_level_names_what_a_worker_lacks(namespace):
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020), text=False), namespace=namespace)
    lab.apply(job("plain", secure=False), namespace=namespace)
    lab.wait_until("Accepted=False", lambda: lab.condition(lab.job(namespace, "plain"), "Accepted")["status"] == "False", 90,
                   show=lambda: lab.show_condition(lab.job(namespace, "plain"), "Accepted"))
    refused = lab.condition(lab.job(namespace, "plain"), "Accepted")
    check("restricted" in refused["message"] and "runAsNonRoot" in refused["message"], refused["message"])
    check(not lab.pods(namespace), "pods were made")
    lab.kubectl("-n", namespace, "delete", "ppj", "plain")
    return refused["message"][:200]


def test_job_completes_here_and_is_left_alone_elsewhere(namespace):
    lab.apply(job("alone", secure=False), namespace=OTHER)
    lab.apply(job("gpt", secure=True), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Complete", "ppj/gpt", "--timeout=400s", timeout=410)
    other = lab.job(OTHER, "alone")
    check(other and not other.get("status"), f"the job of another namespace has a status: {other.get('status')}")
    check(not lab.pods(OTHER), "the job of another namespace has pods")


def test_helm_test_passes(namespace):
    """`weir-operator check` with the operator's own rights: CRD, each verb, Prometheus and its series, control port."""
    done = lab.helm("test", "weir", "-n", SYSTEM, "--timeout", "120s", timeout=150, ok=None)
    log = lab.kubectl("-n", SYSTEM, "logs", "weir-operator-check", ok=None).stdout.strip()
    check(done.returncode == 0, f"{done.stderr[-400:]}\n{log}")
    return log.splitlines()[-1] if log else "no log"


def cleanup(_):
    lab.helm("uninstall", "weir", "-n", SYSTEM, "--wait", "--timeout", "90s", ok=None)
    lab.kubectl("delete", "namespace", OTHER, SYSTEM, "--wait=false", ok=None)
    lab.install_chart(scrape_interval="2s")
