# SPDX-License-Identifier: Apache-2.0
"""The control API: a pod may speak for its own job only."""
import http.client
import json
import ssl

import jobs
import lab
from lab import check

SERVICE = "weir-operator.weir-system.svc"


def small_job(name):
    """One worker without a GPU, so that two jobs run side by side."""
    spec = {"parallelism": {"stages": 1}, "workerGroups": [{"name": "cpu", "count": 1}]}
    job = jobs.gpt_job(name, 100000, text=False, **spec)
    job["spec"]["worker"].update(volumes=[], volumeMounts=[])
    return job


def token(namespace, pod, audience="weir.dev/control"):
    """What the kubelet writes into the pod's projected volume: a token bound to this pod."""
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
               "spec": {"audiences": [audience], "expirationSeconds": 600, "boundObjectRef": bound}}
    return lab.api(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", "POST", request)["status"]["token"]


class ControlConnection(http.client.HTTPSConnection):
    """TLS checked against the name of the Service, sent to the operator's pod (the control plane has no kube-proxy)."""

    def connect(self):
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=SERVICE)


def ask(namespace, name, method, call, bearer, body=None):
    """A call of the control API for this job; the HTTP code and the body."""
    control = lab.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}-control")["data"]
    context = ssl.create_default_context(cadata=control["ca.crt"])
    leaders = [p for p in lab.pods("weir-system", "app.kubernetes.io/name=weir-operator") if "deletionTimestamp" not in p["metadata"]]
    connection = ControlConnection(leaders[0]["status"]["podIP"], 8443, context=context, timeout=10)
    headers = {"Content-Type": "application/json"}
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    connection.request(method, f"/v1/namespaces/{namespace}/pipelinejobs/{name}{call}", None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace")


def join(namespace, name, pod, bearer):
    labels = pod["metadata"]["labels"]
    body = {"jobUid": lab.job(namespace, name)["metadata"]["uid"], "pod": pod["metadata"]["name"], "podUid": pod["metadata"]["uid"],
            "workerIndex": int(labels["weir.dev/worker-index"]), "attempt": int(labels["weir.dev/attempt"]), "protocol": {"min": 1, "max": 1}}
    return ask(namespace, name, "POST", "/join", bearer, body)


def only_pod(namespace, name):
    return lab.pods(namespace, f"weir.dev/job-name={name}")[0]


def test_two_jobs_run(namespace):
    lab.apply(small_job("one"), small_job("two"), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/one", "ppj/two", "--timeout=120s", timeout=130)


def test_own_token_joins(namespace):
    pod = only_pod(namespace, "one")
    code, body = join(namespace, "one", pod, token(namespace, pod))
    check(code == 200 and "jobKey" in body, f"{code} {body}")


def test_token_of_another_job_is_refused(namespace):
    code, body = join(namespace, "one", only_pod(namespace, "one"), token(namespace, only_pod(namespace, "two")))
    check(code == 403, f"{code} {body}")
    check("jobKey" not in body, "a key was given away")


def test_plan_of_another_job_is_refused(namespace):
    own, other = token(namespace, only_pod(namespace, "one")), token(namespace, only_pod(namespace, "two"))
    code, body = ask(namespace, "one", "GET", "/plan?have=0&wait=1", own)
    check(code == 200 and '"jobUid"' in body, f"its own plan: {code} {body[:200]}")
    code, body = ask(namespace, "one", "GET", "/plan?have=0&wait=1", other)
    check(code == 403 and "stages" not in body, f"the plan of another job: {code} {body[:200]}")


def test_workers_token_is_useless_at_the_api_server(namespace):
    """The token that lies in the pod has another audience; and there is no other one in it."""
    pod = only_pod(namespace, "one")
    paths = {"the pods": f"/api/v1/namespaces/{namespace}/pods", "the job": lab.job_path(namespace, "one"),
             "a plan": f"/api/v1/namespaces/{namespace}/configmaps/one-plan-1"}
    for what, path in paths.items():
        try:
            lab.api(path, token=token(namespace, pod))
        except lab.ApiError as error:
            check(error.code == 401, f"{what}: {error}")
        else:
            raise lab.Failure(f"a worker's token reads {what}")
    audiences = [s["serviceAccountToken"].get("audience") for v in pod["spec"]["volumes"] for s in v.get("projected", {}).get("sources", [])
                 if "serviceAccountToken" in s]
    check(audiences == ["weir.dev/control"], f"tokens in the pod: {audiences}")


def test_token_for_the_api_server_is_refused(namespace):
    pod = only_pod(namespace, "one")
    code, body = join(namespace, "one", pod, token(namespace, pod, "https://kubernetes.default.svc"))
    check(code == 401, f"{code} {body}")


def test_no_token_is_refused(namespace):
    code, body = join(namespace, "one", only_pod(namespace, "one"), None)
    check(code == 401, f"{code} {body}")
