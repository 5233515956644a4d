# SPDX-License-Identifier: Apache-2.0
"""PipelineJobs that the cluster tests and the demo submit: a small GPT over four nodes, its compute emulated.

Emulated compute: each worker does the arithmetic of its layers and then sleeps up to the time that the profile gives a
layer. So the step time of four workers does not depend on how few cores the machine has, and timing claims are honest.
"""
import json
import pathlib
import subprocess
import time

import lab

DEVICES = {"a100": ("NVIDIA-A100-SXM4-80GB", "A100"), "l4": ("NVIDIA-L4", "L4")}
MICRO_BATCH = 4        # samples
SEQUENCE = 120         # bytes of text a sample; a boundary tensor is 4 x 120 x 64 channels x 4 B = 123 kB
MODEL = "gpt-tiny"
LAYERS = ["embed", *(f"block{i}" for i in range(6)), "head"]
STAGES = 4
NODES = ("n1", "n2", "n3", "n4")
PER_NODE = "$(WEIR_NODE_NAME)"
TEXT = "/data/text.txt"   # in the pods; of config_maps


def emulated_profile(forward=0.020, backward=0.040, weights=0.0):
    """profile.json whose stages of two layers take `forward` and `backward` seconds a micro-batch on either device type.
    weights: the part of a backward that makes gradients of weights; 0: layers do not split."""
    per_stage = len(LAYERS) // STAGES
    time_of_layer = {"samples": MICRO_BATCH, "forward": forward / per_stage, "backward": backward / per_stage, "update": 0.0}
    if weights:
        time_of_layer["split"] = {"input": (1 - weights) * backward / per_stage, "weights": weights * backward / per_stage}
    times = {device: [time_of_layer] for _, device in DEVICES.values()}
    nodes = [{"id": layer, "parameterBytes": 200000, "outputBytesPerSample": SEQUENCE * 64 * 4, "times": times} for layer in LAYERS]
    return {"apiVersion": "weir.dev/profile/v1", "model": MODEL, "scaling": "proportional", "nodes": nodes}


def download_package(name, folder):
    """The newest .deb; tries again with fresh package lists: there may be none yet, or another apt is just replacing them."""
    for attempt in range(3):
        if attempt:
            subprocess.run(["apt-get", "update", "-q"], capture_output=True)   # its failure shows in the next download
            time.sleep(5)
        got = subprocess.run(["apt-get", "download", "-q", name], cwd=folder, capture_output=True, text=True)
        if got.returncode == 0:
            return
    raise lab.Failure(f"apt-get download {name}: {' '.join(got.stderr.split())}")


def text_file():
    """A public-domain text of 0.9 MB: the Jargon File of Debian's package jargon-text; fetched once into the cache, which needs
    the machine's network: call it before lab.start()."""
    cache = lab.bin_dir().parent / "text"
    text = cache / "jargon.txt"
    if not text.exists():
        cache.mkdir(parents=True, exist_ok=True)
        download_package("jargon-text", cache)
        [package] = cache.glob("jargon-text_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, cache / "files"], check=True)
        raw = subprocess.run(["gzip", "-dc", cache / "files/usr/share/doc/jargon-text/jargon.txt.gz"], check=True, capture_output=True).stdout
        text.write_bytes(raw.decode(errors="ignore").encode("ascii", "ignore")[:900_000])   # a ConfigMap holds 1 MiB
    return text


def config_maps(profile=None, text=True):
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "emulation"},
             "data": {"profile.json": json.dumps(profile or emulated_profile())}}]
    if text:
        maps.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "text"}, "data": {"text.txt": text_file().read_text()}})
    return maps


def group(name, count, gpu=True):
    product, device = DEVICES[name]
    environment = [{"name": "WEIR_EMULATE_DEVICE", "value": device}, {"name": "WEIR_EMULATE_PROFILE", "value": "/emulation/profile.json"}]
    entry = {"name": name, "count": count, "nodeSelector": {"nvidia.com/gpu.product": product},
             "template": {"spec": {"containers": [{"name": "trainer", "env": environment}]}}}
    if gpu:
        entry["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    return entry


def validation(interval, samples):
    """Arguments with which a job that has the text also tells its loss without training, every `interval` steps."""
    return [f"--validation-interval={interval}", f"--validation-data={TEXT}", f"--validation-samples={samples}"]


def gpt_job(name, steps, *, text=True, args=(), micro_batches=16, **spec):
    """Four stages of gpt-tiny on two A100 and two L4 nodes; `spec` adds to or replaces parts of the spec."""
    volumes = [{"name": "emulation", "configMap": {"name": "emulation"}}]
    mounts = [{"name": "emulation", "mountPath": "/emulation", "readOnly": True}]
    arguments = [f"--model={MODEL}", f"--steps={steps}", f"--seq={SEQUENCE}", "--seed=1", *args]
    if text:
        volumes.append({"name": "text", "configMap": {"name": "text"}})
        mounts.append({"name": "text", "mountPath": "/data", "readOnly": True})
        arguments.append(f"--data={TEXT}")
    body = {
        "parallelism": {"stages": STAGES},
        "worker": {"image": lab.WORKER_IMAGE, "imagePullPolicy": "Never", "args": arguments, "volumes": volumes, "volumeMounts": mounts},
        "workerGroups": [group("a100", 2), group("l4", 2)],
        "batch": {"globalBatchSize": micro_batches * MICRO_BATCH, "microBatchSize": MICRO_BATCH},
        "schedule": {"k": {"initial": 1}},
        "adaptation": {"evaluationIntervalSeconds": 5, "retune": {"cooldownSeconds": 10, "minGainPercent": 3},
                       "metrics": {"windowSeconds": 10, "staleAfterSeconds": 15}},
    }
    body.update(spec)
    return {"apiVersion": "weir.dev/v1alpha1", "kind": "PipelineJob", "metadata": {"name": name}, "spec": body}


def replicas_job(name, replicas, steps, *, args=(), times="profile"):
    """Two stages of `replicas` workers each, one worker of a type a replica; k stays, and the cut as long as no pod is
    lost. times: which of the profiles of replicas_maps the workers take; PER_NODE: each the one of its node."""
    groups = [group("a100", 1), group("l4", 1)]
    for entry in groups:
        [profile] = [e for e in entry["template"]["spec"]["containers"][0]["env"] if e["name"] == "WEIR_EMULATE_PROFILE"]
        profile["value"] = f"/emulation/{times}.json"
    body = gpt_job(name, steps, args=args, workerGroups=groups)
    spec = body["spec"]
    spec["parallelism"] = {"stages": 2, "dataParallel": replicas}
    spec["schedule"] = {"k": {"mode": "Fixed", "initial": 1}}
    # What the planner believes is the same for all nodes: that one is slow shows in its step times only.
    spec["model"] = {"profile": {"source": "ConfigMap", "configMap": {"name": "emulation"}}}
    spec["adaptation"]["regroup"] = {"enabled": False}
    return body


def replicas_maps(slow_node, forward, backward):
    """The config maps of such jobs: `profile`; one for each node, with twice these times on `slow_node`; `fast`, for losses alone."""
    normal, slow = emulated_profile(forward, backward), emulated_profile(2 * forward, 2 * backward)
    [emulation, text] = config_maps(normal)
    emulation["data"]["fast.json"] = json.dumps(emulated_profile(forward / 20, backward / 20))
    for node in NODES:
        emulation["data"][f"{node}.json"] = json.dumps(slow if node == slow_node else normal)
    return [emulation, text]


def movable_job(name, cooldown, mode="Auto", **more):
    """Four workers whose cut is left to the planner, and may change: tier regroup, as well as the order of micro-batches."""
    adaptation = {"mode": mode, "evaluationIntervalSeconds": 5, "retune": {"cooldownSeconds": 10, "minGainPercent": 3},
                  "regroup": {"cooldownSeconds": cooldown, "minGainPercent": 10}, "metrics": {"windowSeconds": 10, "staleAfterSeconds": 15}}
    adaptation.update(more.pop("adaptation", {}))
    body = gpt_job(name, 100000, text=False, adaptation=adaptation, **more)
    body["spec"]["parallelism"].pop("stages")
    return body
