# SPDX-License-Identifier: Apache-2.0
"""The test cluster as seen by tests and the demo: start it, talk to its API server and Prometheus, shape its links.

Only the standard library. A program calls start() once (builds what is missing, starts the cluster, enters the network of
the control plane), after that api(), kubectl(), helm() and prometheus() work. Everything that waits has a deadline.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STATE = pathlib.Path(os.environ.get("WEIR_CLUSTER_STATE", ROOT / "build" / "cluster"))
PREFIX = os.environ.get("WEIR_CLUSTER_NAME", "weir")
API = "https://10.210.0.1:6443"
OPERATOR_IMAGE = "localhost/weir-operator"
WORKER_IMAGE = "localhost/weir-worker:test"
CLONE_NEWNET = 0x40000000  # <sched.h>


class Failure(Exception):
    """A claim of a test that does not hold; its text says what was expected and what was seen."""


class ApiError(Exception):
    def __init__(self, code, reason, message):
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message = code, reason, message


class Skip(Exception):
    """What a test raises that cannot be judged on this machine now; the text says why."""


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def check(condition, text):
    if not condition:
        raise Failure(text)


# --- programs ---------------------------------------------------------------------------------------------------------

def sh(*command, timeout=120, text_input=None, ok=(0,)):
    """Runs a command, returns its standard output. Any exit code not in `ok` is a Failure with the end of its output."""
    command = [str(c) for c in command]
    try:
        done = subprocess.run(command, input=text_input, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{' '.join(command)[:200]}: no end after {timeout} s") from late
    if ok is not None and done.returncode not in ok:
        raise Failure(f"{' '.join(command)[:200]}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout if ok is not None else done


def bin_dir():
    digest = sh("sha256sum", HERE / "go.sum")[:12]
    base = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    return base / "weir" / f"cluster-{digest}"


def script(name, *arguments, timeout=120):
    return sh(HERE / name, *arguments, timeout=timeout)


def kubectl(*arguments, timeout=120, text_input=None, ok=(0,)):
    return sh(bin_dir() / "kubectl", "--kubeconfig", STATE / "kube" / "admin", *arguments,
              timeout=timeout, text_input=text_input, ok=ok)


def helm(*arguments, timeout=180, ok=(0,)):
    return sh(bin_dir() / "helm", "--kubeconfig", STATE / "kube" / "admin", *arguments, timeout=timeout, ok=ok)


# --- start and stop ---------------------------------------------------------------------------------------------------

def build_all():
    """Builds programs and images that are not in the cache yet, showing the scripts' progress. Returns the image tars."""
    subprocess.run([HERE / "setup.sh"], check=True, stdout=subprocess.DEVNULL)
    # side by side: one waits for packages or links on one core while the other compiles
    product = subprocess.Popen([HERE / "images.sh", "product"], stdout=subprocess.DEVNULL)
    try:
        subprocess.run([HERE / "build.sh"], check=True, stdout=subprocess.DEVNULL)
    finally:
        failed = product.wait()
    check(not failed, "tests/cluster/images.sh product failed")
    return subprocess.run([HERE / "images.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def start(nodes=4, reuse=False):
    """A cluster with all images, and this process in the network of its control plane."""
    check(os.geteuid() == 0, "needs root: the cluster is made of network namespaces, mounts and cgroups (try sudo)")
    try:
        if not (reuse and (STATE / "run").is_dir()):
            subprocess.run([HERE / "up.sh", "--nodes", str(nodes), *build_all()], check=True)
    except subprocess.CalledProcessError as error:
        raise Failure(f"{error.cmd[0]} failed") from error
    global _up
    _up = True
    enter_network(f"/var/run/netns/{PREFIX}-cp")


def is_up():
    """Did start() bring a cluster up?"""
    return _up


_up = False
_home = os.open("/proc/self/ns/net", os.O_RDONLY)   # the network in which this process began


def enter_network(path):
    """This process and the programs it starts use another network namespace from here on."""
    namespace = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
            raise Failure(f"{path}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(namespace)


@contextlib.contextmanager
def machine_network():
    """Inside, this process is in the machine's own network again, which downloads need."""
    enter_network(f"/proc/self/fd/{_home}")
    try:
        yield
    finally:
        enter_network(f"/var/run/netns/{PREFIX}-cp")


def import_image(group, nodes):
    """Builds that group of images.sh, if it is not in the cache, and imports its last image into containerd of these nodes."""
    with machine_network():
        tar = script("images.sh", group, timeout=900).split()[-1]
    for node in nodes:
        sh("ctr", "-a", STATE / node / "c.sock", "-n", "k8s.io", "images", "import", tar, timeout=300)


def file_of_image(image, name):
    """The bytes of a file in the image of the product with this name, as images.sh has built it last."""
    newest = max((bin_dir().parent / "images").glob(f"{image}-*.tar"), key=lambda path: path.stat().st_mtime)
    with tarfile.open(newest) as archive:
        [manifest] = json.load(archive.extractfile("manifest.json"))
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                if name in files.getnames():
                    return files.extractfile(name).read()
    raise Failure(f"{newest.name} has no {name}")


def stop():
    """Ends the cluster; this process leaves its network first, or the namespace would stay."""
    enter_network(f"/proc/self/fd/{_home}")
    subprocess.run([HERE / "down.sh"], check=False)


def install_prometheus():
    kubectl("apply", "--server-side", "-f", HERE / "manifests" / "prometheus.yaml")
    kubectl("-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=120s", timeout=130)


def image_tag():
    """The images are tagged :test in every build; the chart gets it as image.tag."""
    return "test"


def install_chart(*settings, replicas=1, scrape_interval="1s", namespace="weir-system"):
    """helm install of the chart in a namespace whose PodSecurity level is restricted."""
    apply({"apiVersion": "v1", "kind": "Namespace",
           "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    values = [f"image.repository={OPERATOR_IMAGE}", f"image.tag={image_tag()}", "image.pullPolicy=Never", f"replicaCount={replicas}",
              "prometheus.url=http://prometheus.monitoring.svc:9090", f"prometheus.scrapeInterval={scrape_interval}", *settings]
    began = time.monotonic()
    helm("upgrade", "--install", "weir", ROOT / "helm" / "weir", "--namespace", namespace, "--wait",
         "--timeout", "120s", *[word for value in values for word in ("--set", value)])
    return time.monotonic() - began


# --- API server -------------------------------------------------------------------------------------------------------

_token = None


def _context():
    context = ssl.create_default_context(cafile=str(STATE / "pki" / "apiserver.crt"))
    return context


def admin_token():
    global _token
    if _token is None:
        line = next(line for line in (STATE / "pki" / "tokens.csv").read_text().splitlines() if ",admin,admin," in line)
        _token = line.split(",")[0]
    return _token


def api(path, method="GET", body=None, content="application/json", token=None, timeout=20):
    """One request to the API server; the decoded JSON, or ApiError."""
    request = urllib.request.Request(API + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {token or admin_token()}")
    request.add_header("Content-Type", content)
    try:
        with urllib.request.urlopen(request, context=_context(), timeout=timeout) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        try:
            status = json.loads(text)
        except ValueError:
            status = {}
        raise ApiError(error.code, status.get("reason", ""), status.get("message", text[:500])) from error


def apply(*objects, namespace=None):
    where = ["-n", namespace] if namespace else []
    kubectl(*where, "apply", "--server-side", "--force-conflicts", "-f", "-",
            text_input="\n---\n".join(json.dumps(o) for o in objects))


def get(path):
    """The object at this API path, None when it does not exist."""
    try:
        return api(path)
    except ApiError as error:
        if error.code == 404:
            return None
        raise


def job_path(namespace, name):
    return f"/apis/weir.dev/v1alpha1/namespaces/{namespace}/pipelinejobs/{name}"


def job(namespace, name):
    return get(job_path(namespace, name)) or {}


def pods(namespace, selector=""):
    query = urllib.parse.urlencode({"labelSelector": selector}) if selector else ""
    return api(f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]


def events(namespace, reason=None, name=None):
    """Events of the job of this name (not of an earlier one), oldest first; or of everything."""
    uid = job(namespace, name).get("metadata", {}).get("uid") if name else None
    items = api(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    wanted = [e for e in items if reason in (None, e.get("reason")) and uid in (None, e.get("regarding", {}).get("uid"))]
    return sorted(wanted, key=lambda e: e.get("eventTime") or e["metadata"]["creationTimestamp"])


def condition(thing, kind):
    for entry in (thing or {}).get("status", {}).get("conditions") or []:   # null in a new CRD
        if entry["type"] == kind:
            return entry
    return {"type": kind, "status": "absent", "reason": "", "message": ""}


def show_condition(thing, kind):
    entry = condition(thing, kind)
    return f"{kind}={entry['status']}/{entry['reason']}: {entry['message']}"


def wait_until(what, probe, timeout, interval=0.5, show=None):
    """Calls probe until it returns something true, which is returned. After `timeout` seconds a Failure that names `what`."""
    deadline = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"not within {timeout} s: {what}" + (f"; now: {show()}" if show else ""))
        time.sleep(interval)


def step_of(namespace, name):
    return job(namespace, name).get("status", {}).get("progress", {}).get("step", 0)


def plan_of(thing):
    return thing.get("status", {}).get("plan", {})


def plan_document(namespace, thing):
    """plan.json of the plan in the job's status."""
    name = plan_of(thing).get("configMapName")
    return json.loads(api(f"/api/v1/namespaces/{namespace}/configmaps/{name}")["data"]["plan.json"]) if name else {}


def container_id(pod):
    """Of a pod's first container; "" as long as its kubelet has not told of it: a worker may run and report before that."""
    [first] = pod["status"].get("containerStatuses", [])[:1] or [{}]
    return first.get("containerID", "").removeprefix("containerd://")


def signal_container(pod, name):
    """A signal to the first process of a pod's first container: KILL, STOP, CONT."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    container = container_id(pod) or wait_until(f"a container of {pod['metadata']['name']}", lambda: container_id(get(path)), 30)
    sh("ctr", "-a", STATE / pod["spec"]["nodeName"] / "c.sock", "-n", "k8s.io", "tasks", "kill", "-s", f"SIG{name}", container)


def kill_container(node, pod):
    """SIGKILL to the first container of a pod, as a crash: no deletion, no grace. The pod ends as Failed with code 137."""
    check(pod["spec"]["nodeName"] == node, f"{pod['metadata']['name']} is on {pod['spec']['nodeName']}, not on {node}")
    signal_container(pod, "KILL")


def signal_kubelet(node, name):
    """STOP: as if the kubelet hung; its node's heartbeats end, the containers go on. CONT wakes it."""
    os.kill(int((STATE / "run" / f"kubelet-{node}.pid").read_text()), getattr(signal, f"SIG{name}"))


def reported_step(namespace, name):
    """The newest step by the workers' own word (the status follows up to 15 s later, and the operator may be away). 0: none answers."""
    newest = 0
    for pod in pods(namespace, f"weir.dev/job-name={name}"):
        if pod["status"].get("phase") != "Running" or not pod["status"].get("podIP"):
            continue
        try:
            newest = max([newest, *(v for n, _, v in scrape(pod["status"]["podIP"]) if n == "weir_step" and v == v)])
        except (OSError, ValueError):
            pass
    return int(newest)


# --- Prometheus -------------------------------------------------------------------------------------------------------

def shared_claim(namespace, name, folder):
    """A volume on this machine's disk, which all nodes have, and a claim for it; the folder is emptied."""
    shutil.rmtree(folder, ignore_errors=True)   # an earlier run's jobs had the same names
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    claim(namespace, name, folder)


def claim(namespace, name, folder):
    """A claim for a volume that is a folder of this machine."""
    size = {"storage": "1Gi"}
    apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{namespace}-{name}"},
           "spec": {"capacity": size, "accessModes": ["ReadWriteMany"], "storageClassName": "", "hostPath": {"path": str(folder)},
                    "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": namespace, "name": name}}})
    apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
           "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": f"{namespace}-{name}", "resources": {"requests": size}}},
          namespace=namespace)


def losses(folder, name):
    """{step: loss} by the files that the workers of the job `name` wrote (--loss-log); the last stage knows the loss."""
    found = {}
    for path in folder.glob(f"{name}.*.json"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("loss") is not None:
                found[entry["step"]] = entry["loss"]
    return found


def prometheus_address():
    running = [p for p in pods("monitoring", "app=prometheus") if p["status"].get("podIP") and "deletionTimestamp" not in p["metadata"]]
    return f"http://{running[0]['status']['podIP']}:9090" if running else None


def prometheus(query, at=None):
    """An instant query: a list of (labels, value)."""
    parameters = {"query": query} if at is None else {"query": query, "time": f"{at:.3f}"}
    address = prometheus_address()
    check(address, "Prometheus has no pod")
    with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        result = json.loads(answer.read())["data"]["result"]
    return [(series["metric"], float(series["value"][1])) for series in result]


def prometheus_value(query, at=None):
    """The single value of a query, None without data."""
    values = [v for _, v in prometheus(query, at) if v == v]
    return values[0] if values else None


def lateness_p99(namespace, name, window):
    """Seconds by which emulated compute woke up late, 99 % quantile over the last `window` seconds: is the machine too busy to
    judge times? None without emulation."""
    return prometheus_value(f'histogram_quantile(0.99, sum by (le) (increase(weir_emulated_lateness_seconds_bucket'
                            f'{{pipeline_namespace="{namespace}",pipeline_job="{name}"}}[{int(window)}s])))')


def scrape(address, port=9400):
    """The samples of one /metrics page: list of (name, labels text, value)."""
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    samples = []
    for line in lines:
        if line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            samples.append((name, labels.rstrip("}"), float(value)))
    return samples


# --- links ------------------------------------------------------------------------------------------------------------

def share_link(rate, first, second):
    """Between two pods (node, address): traffic of either one into the other's node gets exactly `rate` (40mbit)."""
    script("shape.sh", second[0], "share", rate, first[1])
    script("shape.sh", first[0], "share", rate, second[1])


def clear_links(*nodes):
    for node in nodes:
        script("shape.sh", node, "clear")


def stage_pods(namespace, thing):
    """(node, address, pod name) per stage of replica 0, from the plan document."""
    ranks = sorted((r for r in plan_document(namespace, thing)["ranks"] if r["replica"] == 0), key=lambda r: r["stage"])
    return [(r["node"], r["ip"], r["pod"]) for r in ranks]


def iperf3_pod(name, node, *arguments):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
                     "containers": [{"name": "iperf3", "image": "localhost/iperf3:1", "imagePullPolicy": "Never", "args": list(arguments)}]}}


def main_guard(function):
    """Runs a program's main: a Failure is one clear line and exit code 1."""
    try:
        sys.exit(function())
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
