# SPDX-License-Identifier: Apache-2.0
"""A cluster with jobs that show something on each board, for pictures: one whose link another tenant takes, and one of whose workers is killed; one
with replicas that average in groups; one that waits for nodes; one whose options are wrong."""
import json
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
import boards  # noqa: E402
import jobs  # noqa: E402
import lab  # noqa: E402
from lab import say  # noqa: E402

CHAIN, REPLICAS, WAITING, WRONG = ("team-a", "gpt"), ("team-b", "apart"), ("team-b", "waits"), ("team-a", "wrong")
SLOW_NODE, TAKEN = "n4", "40mbit"
QUIET, PREEMPTED, FREE, AGAIN = 60, 150, 120, 90   # seconds of each phase
USUAL = 420                                        # within which the operator knows what is usual; it takes 5 min


def chain_job():
    checkpoint = {"path": "/ckpt", "intervalSteps": 50, "graceSeconds": 10, "persistentVolumeClaim": {"claimName": "ckpt"}}
    return jobs.gpt_job(CHAIN[1], 2000, args=["--lr=0.003", "--warmup=10", *jobs.validation(50, 16)], checkpoint=checkpoint)


def replicas_job():
    body = jobs.replicas_job(REPLICAS[1], 2, 100000, args=jobs.validation(100, 8), times=jobs.PER_NODE)
    body["spec"]["sync"] = {"mode": "Partial"}
    return body


def waiting_job():
    body = jobs.gpt_job(WAITING[1], 100, text=False)
    body["spec"]["workerGroups"] = [jobs.group("a100", 2), {**jobs.group("l4", 2), "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100"}}]
    return body


def ratio_known():
    return all(lab.prometheus(f'weir_job_link_bandwidth_ratio{{pipeline_job="{name}"}}') for _, name in (CHAIN, REPLICAS))


def stretch(what, seconds):
    say(f"{what}: {seconds} s")
    time.sleep(seconds)


def train():
    """The jobs, until they train. Gives the time at which they began."""
    begin = time.time()
    for namespace in (CHAIN[0], REPLICAS[0]):
        lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        lab.wait_until("default service account", lambda: lab.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"), 20)
    lab.shared_claim(CHAIN[0], "ckpt", lab.STATE / "checkpoints")
    lab.apply(*jobs.config_maps(jobs.emulated_profile(weights=0.5)), namespace=CHAIN[0])
    lab.apply(*jobs.replicas_maps(SLOW_NODE, 0.010, 0.020), namespace=REPLICAS[0])
    lab.apply(chain_job(), namespace=CHAIN[0])
    lab.apply(replicas_job(), namespace=REPLICAS[0])
    for namespace, name in (CHAIN, REPLICAS):
        lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"ppj/{name}", "--timeout=180s", timeout=190)
    lab.apply(waiting_job(), namespace=WAITING[0])
    idle = [jobs.group(device, 2, gpu=False) for device in ("a100", "l4")]
    lab.apply(jobs.gpt_job(WRONG[1], 100, args=["--lr=much"], text=False, workerGroups=idle), namespace=WRONG[0])
    return begin


def play():
    """What happens to the jobs; gives (begin, end) of the pictures."""
    begin = train()
    lab.wait_until("what is usual of each link", ratio_known, USUAL, interval=5)
    stretch("quiet", QUIET)
    stages = lab.stage_pods(CHAIN[0], lab.job(*CHAIN))
    lab.share_link(TAKEN, stages[1], stages[2])
    stretch("another tenant has taken link 1-2", PREEMPTED)
    lab.clear_links(stages[1][0], stages[2][0])
    stretch("the link is free again", FREE)
    stages = lab.stage_pods(CHAIN[0], lab.job(*CHAIN))
    node, _, name = stages[3]
    lab.kill_container(node, lab.get(f"/api/v1/namespaces/{CHAIN[0]}/pods/{name}"))
    stretch("a worker was killed", AGAIN)
    return begin, time.time()


def empty():
    """Panels without data, of either job."""
    told = []
    for (namespace, name), has in ((CHAIN, {"usual", "bound", "checkpoint", "change", "restart"}), (REPLICAS, {"usual", "replicas", "partial"})):
        told += [f"{name}: {text}" for text in boards.empty_panels(lab.prometheus, has, namespace=namespace, job=name, since="20m")]
    return told


def start(reuse):
    os.environ.setdefault("GPUS", "2")   # both jobs at once on four nodes
    jobs.text_file()                     # while this process still is in the machine's network
    lab.start(reuse=reuse)
    lab.install_prometheus()
    lab.install_chart()


def keep_data(folder):
    """A copy of what Prometheus holds."""
    [pod] = lab.pods("monitoring", "app=prometheus")
    root = lab.STATE / "n1" / "ctd-state" / "io.containerd.runtime.v2.task" / "k8s.io" / lab.container_id(pod) / "rootfs" / "data"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root, folder / "tsdb", ignore=shutil.ignore_patterns("lock"))


def note_range(folder, begin, end):
    (folder / "range.json").write_text(json.dumps({"from": round(begin * 1000), "to": round(end * 1000)}))
