# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Kueue and Volcano, for cases that need one that is quick or misbehaves; the real Kueue runs in
tests/cluster/cases/c15_kueue.py. Kueue is its webhook for pods and its controller for pod groups, by its documentation ("Run plain
pods") and its pkg/controller/jobs/pod as of August 2026; Volcano is its PodGroup CRD with the fields of
scheduling.volcano.sh/v1beta1 (its staging/src/volcano.sh/apis of then), whose status the test writes as the scheduler would."""
import base64
import collections
import http.server
import json
import ssl
import subprocess
import threading

from control_plane import ApiError, free_port

PREFIX = "kueue.x-k8s.io/"
QUEUE, GROUP, MANAGED = PREFIX + "queue-name", PREFIX + "pod-group-name", PREFIX + "managed"   # labels; the last also a finalizer
COUNT, ROLE, RETRIABLE = PREFIX + "pod-group-total-count", PREFIX + "role-hash", PREFIX + "retriable-in-group"   # annotations
GATE = PREFIX + "admission"


def patch_of(pod):
    """What Kueue's webhook does to a new pod: JSON patch operations; a text when it refuses."""
    meta, spec = pod["metadata"], pod["spec"]
    labels, annotations = meta.get("labels", {}), meta.get("annotations", {})
    if QUEUE not in labels:
        return []
    if bool(labels.get(GROUP)) != (COUNT in annotations):
        return f"both the '{COUNT}' annotation and the '{GROUP}' label should be set"
    if COUNT in annotations and int(annotations[COUNT]) < 1:
        return f"{COUNT} should be greater than zero"
    return [{"op": "add", "path": "/metadata/labels", "value": {**labels, MANAGED: "true"}},
            {"op": "add", "path": "/metadata/annotations", "value": {ROLE: "shape", **annotations}},
            {"op": "add", "path": "/metadata/finalizers", "value": [*meta.get("finalizers", []), MANAGED]},
            {"op": "add", "path": "/spec/schedulingGates", "value": [*spec.get("schedulingGates", []), {"name": GATE}]}]


class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        patch = patch_of(request["object"])
        response = {"uid": request["uid"], "allowed": not isinstance(patch, str)}
        if isinstance(patch, str):
            response["status"] = {"message": patch}
        elif patch:
            response.update(patchType="JSONPatch", patch=base64.b64encode(json.dumps(patch).encode()).decode())
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Workload:
    """Of one pod group: how many pods of each role, and whether it has its quota."""

    def __init__(self, count, roles):
        self.count, self.roles = count, roles
        self.admitted = self.finished = False


def gated(pod):
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", []))


def terminated(pod):
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def active(pod):
    """Runs, can run, or has succeeded; one that is being deleted counts until it ends, if it has a node."""
    if "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName"):
        return False
    return pod["status"].get("phase") != "Failed"


class Kueue(threading.Thread):
    """One queue of a namespace with room for so many pods."""

    def __init__(self, plane, namespace, folder, room=0):
        super().__init__(daemon=True)
        self.plane, self.namespace, self.room = plane, namespace, room
        self.workloads, self.excess, self.evictions = {}, [], []
        self.ended, self.error = threading.Event(), None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Webhook)
        key, certificate = folder / "kueue.key", folder / "kueue.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=kueue",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.configuration = f"kueue-{namespace}"
        plane.api("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {
            "metadata": {"name": self.configuration}, "webhooks": [{
                "name": "mpod.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://127.0.0.1:{self.server.server_port}/mutate--v1-pod", "caBundle": base64.b64encode(certificate.read_bytes()).decode()},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}]})

    def stop(self):
        self.ended.set()
        self.join(20)
        self.plane.api("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{self.configuration}", ok_missing=True)
        self.server.shutdown()

    def run(self):
        while not self.ended.wait(0.1):
            try:
                self.reconcile()
            except ApiError as error:   # a pod that is gone or was changed by now
                if error.code not in (404, 409):
                    self.error = error

    def path(self, pod):
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"

    def patch(self, pod, body, sub="", content="application/merge-patch+json"):
        body.setdefault("metadata", {})["uid"] = pod["metadata"]["uid"]
        self.plane.api("PATCH", self.path(pod) + sub, body, content)

    def finalize(self, pods):
        for pod in pods:
            left = [f for f in pod["metadata"].get("finalizers", []) if f != MANAGED]
            if len(left) != len(pod["metadata"].get("finalizers", [])):
                self.patch(pod, {"metadata": {"finalizers": left or None, "resourceVersion": pod["metadata"]["resourceVersion"]}})

    def reconcile(self):
        groups = collections.defaultdict(list)
        for pod in self.plane.list(f"/api/v1/namespaces/{self.namespace}/pods", f"{MANAGED}=true"):
            groups[pod["metadata"]["labels"].get(GROUP, pod["metadata"]["name"])].append(pod)
        for name in set(self.workloads) - set(groups):   # the garbage collector's: the pods own it
            del self.workloads[name]
        for name, pods in groups.items():
            self.reconcile_group(name, pods)

    def reconcile_group(self, name, pods):
        count = int(pods[0]["metadata"]["annotations"][COUNT])
        workload = self.workloads.get(name)
        if workload is None:
            runnable = [pod for pod in pods if active(pod)]
            if len(runnable) < count:   # "group has fewer runnable pods than expected"
                return
            workload = self.workloads[name] = Workload(count, collections.Counter(pod["metadata"]["annotations"][ROLE] for pod in runnable))
        if any(int(pod["metadata"]["annotations"][COUNT]) != workload.count for pod in pods if not terminated(pod)):
            raise AssertionError(f"pods of group {name} have different counts")
        if workload.finished:
            return self.finalize(pods)
        if self.over(workload, pods):
            workload.finished = True
            return self.finalize(pods)
        self.tidy(workload, pods)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        if name in self.evictions:
            self.evict(pods)
            if not running:
                self.evictions.remove(name)
                workload.admitted = False
            return None
        used = sum(w.count for w in self.workloads.values() if w.admitted and not w.finished)
        if not workload.admitted and sum(1 for pod in pods if active(pod)) == workload.count and used + workload.count <= self.room:
            workload.admitted = True
        if workload.admitted:
            for pod in pods:
                if gated(pod) and active(pod):
                    gates = [g for g in pod["spec"]["schedulingGates"] if g["name"] != GATE]
                    self.patch(pod, {"spec": {"schedulingGates": gates or None}})
        return None

    @staticmethod
    def over(workload, pods):
        if sum(1 for pod in pods if pod["status"].get("phase") == "Succeeded") == workload.count:
            return True
        unretriable = any(pod["metadata"]["annotations"].get(RETRIABLE) == "false" for pod in pods)
        # gated pods that are deleted end without a phase
        return unretriable and all(terminated(pod) or not active(pod) for pod in pods)

    def tidy(self, workload, pods):
        """Deletes pods that are too many for their role, the youngest and gated ones first, and lets go of those that were replaced."""
        for role, wanted in workload.roles.items():
            mine = [pod for pod in pods if pod["metadata"]["annotations"][ROLE] == role]
            kept = sorted((p for p in mine if active(p)), key=lambda p: (gated(p), p["metadata"]["creationTimestamp"]))
            gone = sorted((p for p in mine if not active(p)), key=lambda p: p["metadata"]["creationTimestamp"])
            for pod in kept[wanted:]:
                self.excess.append(pod["metadata"]["name"])
                self.finalize([pod])
                self.plane.api("DELETE", self.path(pod), ok_missing=True)
            self.finalize(gone[:max(0, min(len(gone), len(gone) + len(kept) - wanted))])

    def evict(self, pods):
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"] or gated(pod) or terminated(pod):
                continue
            condition = {"type": "TerminationTarget", "status": "True", "reason": "Preempted", "message": "to accommodate a workload of higher priority"}
            self.patch(pod, {"status": {"conditions": [condition]}}, "/status", "application/strategic-merge-patch+json")
            self.plane.api("DELETE", self.path(pod), ok_missing=True)


def volcano_crd():
    integer = {"type": "integer", "format": "int32"}
    quantity = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    text = {"type": "string"}
    spec = {"minMember": {**integer, "minimum": 0}, "minTaskMember": {"type": "object", "additionalProperties": integer},
            "queue": {**text, "default": "default", "maxLength": 253}, "priorityClassName": {**text, "maxLength": 253},
            "minResources": {"type": "object", "additionalProperties": quantity}}
    condition = {"type": "object", "properties": {key: text for key in ("type", "status", "transitionID", "lastTransitionTime", "reason", "message")}}
    status = {"phase": {**text, "enum": ["Pending", "Running", "Unknown", "Inqueue", "Completed"]}, "conditions": {"type": "array", "items": condition},
              "running": integer, "succeeded": integer, "failed": integer}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", "properties": status}}}
    return {"metadata": {"name": "podgroups.scheduling.volcano.sh", "annotations": {"api-approved.kubernetes.io": "unapproved, a test's stand-in"}},
            "spec": {"group": "scheduling.volcano.sh", "scope": "Namespaced", "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
                     "versions": [{"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]}}
