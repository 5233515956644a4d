# SPDX-License-Identifier: Apache-2.0
"""etcd and kube-apiserver of the test cluster's binaries on loopback, on free ports and in a folder of their own, so that
they run beside a whole cluster. RBAC and ServiceAccount admission are on; there is no kubelet: the test plays it.

    with ControlPlane(folder) as plane:
        plane.api("GET", "/api/v1/namespaces")

Optional programs: start("scheduler"), start("kwok"). Only the standard library. Everything that waits has a deadline.
"""
import http.client
import json
import pathlib
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))
import lab  # noqa: E402
from lab import Failure  # noqa: E402
from ports import free_port  # noqa: E402

START_LIMIT = 90   # seconds; the API server needs 5 on an idle machine


class ApiError(Exception):
    def __init__(self, code, status):
        super().__init__(f"{code} {status.get('reason', '')}: {status.get('message', '')[:300]}")
        self.code, self.reason, self.status = code, status.get("reason", ""), status


class Api:
    """JSON requests over one kept connection per thread."""

    def __init__(self, port, ca, token):
        self.port, self.token = port, token
        self.context = ssl.create_default_context(cafile=str(ca))
        self.local = threading.local()

    def __call__(self, method, path, body=None, content="application/json", ok_missing=False):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content}
        data = None if body is None else json.dumps(body)
        for last_try in (False, True):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=30)
                self.local.connection = connection
            try:
                connection.request(method, path, data, headers)
                answer = connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if last_try:
                    raise
        parsed = json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")}
        if answer.status == 404 and ok_missing:
            return None
        if answer.status >= 300:
            raise ApiError(answer.status, parsed)
        return parsed


class ControlPlane:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.bin = lab.bin_dir()
        self.programs = {}
        self.port, self.etcd_port, self.peer_port = free_port(), free_port(), free_port()
        self.token = secrets.token_hex(16)
        self.ca = self.folder / "pki" / "apiserver.crt"

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # or the programs would outlive us
        try:
            return self.up()
        except BaseException:
            self.down()
            raise

    def __exit__(self, *_):
        self.down()

    def up(self):
        for name in ("etcd", "kube-apiserver"):
            if not (self.bin / name).exists():
                raise lab.Skip(f"{self.bin / name} is not built (tests/cluster/build.sh)")
        shutil.rmtree(self.folder, ignore_errors=True)
        for part in ("pki", "log", "kube"):
            (self.folder / part).mkdir(parents=True)
        pki = self.folder / "pki"
        lab.sh("openssl", "genrsa", "-out", pki / "sa.key", "2048")
        lab.sh("openssl", "rsa", "-in", pki / "sa.key", "-pubout", "-out", pki / "sa.pub")
        # who did what: the operators' requests, without their bodies
        (self.folder / "audit.json").write_text(json.dumps({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]}))
        users = [("admin", "system:masters"), ("system:kube-scheduler", "")]
        tokens = {name: self.token if name == "admin" else secrets.token_hex(16) for name, _ in users}
        (pki / "tokens.csv").write_text("".join(f'{tokens[n]},{n},{n},"{g}"\n' for n, g in users))
        peer = f"http://127.0.0.1:{self.peer_port}"
        self.start("etcd", self.bin / "etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn",
                   "--listen-client-urls", self.etcd_url, "--advertise-client-urls", self.etcd_url,
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        self.start_apiserver()
        self.api = Api(self.port, self.ca, self.token)
        for name, token in tokens.items():
            self.kubeconfig(name, token)
        self.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", self.crd())
        return self

    @property
    def etcd_url(self):
        return f"http://127.0.0.1:{self.etcd_port}"

    def start_apiserver(self):
        pki = self.folder / "pki"
        self.start("apiserver", self.bin / "kube-apiserver", f"--etcd-servers={self.etcd_url}", "--bind-address=127.0.0.1",
                   "--advertise-address=127.0.0.1", f"--secure-port={self.port}", f"--cert-dir={pki}",
                   f"--token-auth-file={pki / 'tokens.csv'}", f"--service-account-key-file={pki / 'sa.pub'}",
                   f"--service-account-signing-key-file={pki / 'sa.key'}", "--service-account-issuer=https://kubernetes.default.svc",
                   "--authorization-mode=RBAC", "--service-cluster-ip-range=10.213.0.0/16", "--endpoint-reconciler-type=none",
                   f"--audit-policy-file={self.folder / 'audit.json'}", f"--audit-log-path={self.folder / 'log' / 'audit.log'}")
        lab.wait_until("API server", self.ready, START_LIMIT, 0.2, lambda: self.tail("apiserver"))

    def ready(self):
        if self.programs["apiserver"].poll() is not None:
            raise Failure(f"kube-apiserver ended: {self.tail('apiserver')}")
        if not self.ca.exists():
            return False
        try:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=ssl.create_default_context(cafile=str(self.ca)))
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {self.token}"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def start(self, name, *command):
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self, name, limit=20, kill=False):
        program = self.programs.pop(name, None)
        if program is None:
            return
        if kill:
            program.kill()
        program.terminate()
        try:
            program.wait(limit)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait(limit)

    def down(self):
        for name in reversed(list(self.programs)):
            self.stop(name)

    def tail(self, name, size=1500):
        log = self.folder / "log" / f"{name}.log"
        return log.read_text(errors="replace")[-size:] if log.exists() else ""

    def kubeconfig(self, name, token):
        path = self.folder / "kube" / name.replace(":", "-")
        write_kubeconfig(path, f"https://127.0.0.1:{self.port}", self.ca, token=token)
        return path

    @staticmethod
    def crd():
        text = lab.sh(sys.executable, "-c", "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))",
                      ROOT / "crds" / "pipelinejobs.weir.dev.yaml")
        return json.loads(text)

    def start_scheduler(self):
        config = self.folder / "kube" / "system-kube-scheduler"
        self.start("scheduler", self.bin / "kube-scheduler", f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                   f"--authorization-kubeconfig={config}", "--authentication-tolerate-lookup-failure", "--bind-address=127.0.0.1",
                   f"--secure-port={free_port()}", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000")

    # --- objects of tests ---------------------------------------------------------------------------------------------

    def namespace(self, name):
        """A namespace with the ServiceAccount that a controller would make."""
        self.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.api("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    def install_roles(self, namespace, *settings):
        """Account and roles exactly as the chart makes them for an operator in `namespace`."""
        rendered = lab.sh(self.bin / "helm", "template", "weir", ROOT / "helm" / "weir", "-n", namespace, "--kube-version", "1.35.4",
                          *[word for setting in settings for word in ("--set", setting)])
        for o in yaml_documents(rendered):
            kind = o["kind"]
            if kind == "ServiceAccount":
                path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            elif kind in ("Role", "RoleBinding"):
                path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{o['metadata']['namespace']}/{kind.lower()}s"
            elif kind in ("ClusterRole", "ClusterRoleBinding"):
                path = f"/apis/rbac.authorization.k8s.io/v1/{kind.lower()}s"
            else:
                continue
            self.api("POST", path, o)

    def audited(self, namespace, account="weir-operator"):
        """Answered requests of this account: [(group, resource with subresource, verb, name, code)]. Watches that are open are missing."""
        user, found = f"system:serviceaccount:{namespace}:{account}", []
        for line in (self.folder / "log" / "audit.log").read_text().splitlines():
            if user not in line:
                continue
            event = json.loads(line)
            ref = event.get("objectRef", {})
            resource = ref.get("resource", "") + ("/" + ref["subresource"] if "subresource" in ref else "")
            if event["user"]["username"] == user:
                found.append((ref.get("apiGroup", ""), resource, event["verb"], ref.get("name", ""), event.get("responseStatus", {}).get("code", 0)))
        return found

    def granted(self, namespace):
        """(group, resource, verb) that the chart's roles of this namespace's operator allow."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        roles = self.list(f"{rbac}/namespaces/{namespace}/roles") + [
            r for r in self.list(f"{rbac}/clusterroles") if r["metadata"]["name"] == f"weir-operator.{namespace}"]
        return {(g, resource, verb) for role in roles for rule in role["rules"] for g in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}

    def account_token(self, namespace, account="weir-operator", seconds=7200, **request):
        spec = {"expirationSeconds": seconds, **request}
        return self.api("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})["status"]["token"]

    def pod_token(self, pod):
        """What the kubelet writes into the pod's projected volume."""
        meta = pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        return self.account_token(meta["namespace"], "default", 3600, audiences=["weir.dev/control"], boundObjectRef=bound)

    def list(self, path, selector=""):
        query = "?" + urllib.parse.urlencode({"labelSelector": selector}) if selector else ""
        return self.api("GET", path + query)["items"]


def yaml_documents(text):
    import yaml  # Debian's python3-yaml
    return [o for o in yaml.safe_load_all(text) if o]


def write_kubeconfig(path, server, ca, token=None, token_file=None):
    user = {"token": token} if token else {"tokenFile": str(token_file)}
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}))


class Operator:
    """A weir-operator process as the chart would run it, with ports of its own; its log lies in `folder`."""

    def __init__(self, program, folder, kubeconfig, namespace, *arguments, pod="op", environment=None):
        self.folder, self.namespace, self.pod = pathlib.Path(folder), namespace, pod
        self.environment = {"POD_NAME": pod, "POD_IP": "127.0.0.1", "PATH": "/usr/bin:/bin", **(environment or {})}
        self.control, self.metrics_port, self.health = free_port(), free_port(), free_port()
        self.command = [str(program), "run", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}",
                        f"--control-port={self.control}", f"--metrics-port={self.metrics_port}", f"--health-port={self.health}",
                        "--control-service=localhost", *arguments]
        self.log = self.folder / f"{pod}.log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment)
        return self

    def wait_ready(self, limit=60):
        lab.wait_until(f"operator {self.pod} is ready", lambda: self.get(self.health, "/readyz")[0] == 200, limit, 0.1, self.tail)

    @staticmethod
    def get(port, path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metrics(self):
        """Samples of /metrics: {name{labels}: value}."""
        lines = [line for line in self.get(self.metrics_port, "/metrics")[1].splitlines() if line and not line.startswith("#")]
        return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}

    def total(self, name, *holding):
        return sum(v for s, v in self.metrics().items() if s.split("{")[0] == name and all(h in s for h in holding))

    def leads(self):
        return self.total("leader_election_master_status") == 1

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait(20)

    def stop(self, limit=45):
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired as late:
                self.kill()
                raise Failure(f"the operator did not stop within {limit} s: {self.tail()}") from late
        return self.process.returncode

    def tail(self, lines=25):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def find_operator(given=None):
    """The program to test: as given, or the newest of any build folder."""
    if given:
        return pathlib.Path(given)
    built = sorted(ROOT.glob("build/*/operator/app/weir-operator"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise Failure("weir-operator is not built")
    return built[-1]

