# SPDX-License-Identifier: Apache-2.0
"""Layers of one's own: crds/examples/plugin.yaml with the plugin of tests/plugin, as a user who has read the example."""
import subprocess

import yaml

import lab
from lab import check

EXAMPLE = lab.ROOT / "crds" / "examples" / "plugin.yaml"
LIBRARY = lab.ROOT / "build" / "cluster" / "own-layers"
FOLDER = "/opt/own"


def example(name, plugin):
    """The example's job with this cluster's image. The plugin comes by a volume, so no image is built for it."""
    job = yaml.safe_load(EXAMPLE.read_text())
    job["metadata"]["name"] = name
    worker = job["spec"]["worker"]
    check(worker["args"][0] == f"--plugin={FOLDER}/libtwo_layers.so", f"the example's arguments: {worker['args']}")
    worker["args"][0] = f"--plugin={FOLDER}/{plugin}"
    worker.update(image=lab.WORKER_IMAGE, imagePullPolicy="Never", volumes=[{"name": "own", "persistentVolumeClaim": {"claimName": "own"}}],
                  volumeMounts=[{"name": "own", "mountPath": FOLDER, "readOnly": True}])
    return job


def test_the_job_trains_and_says_what_it_trains(namespace):
    lab.shared_claim(namespace, "own", LIBRARY)
    subprocess.run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-I", lab.ROOT / "worker" / "stage" / "foreign", "-o", LIBRARY / "libtwo_layers.so",
                    lab.ROOT / "tests" / "plugin" / "two_layers.c", "-lm"], check=True)
    lab.apply(example("plugin", "libtwo_layers.so"), namespace=namespace)
    info = f'max_over_time(weir_worker_info{{pipeline_namespace="{namespace}",pipeline_job="plugin"}}[2m])'
    workers = lab.wait_until("what the workers say of themselves", lambda: lab.prometheus(info), 120)
    threads = [labels["threads"] for labels, _ in workers]
    check(set(threads) == {"2"}, f"a request of 1100m gives two threads: {threads}")
    lab.kubectl("-n", namespace, "wait", "--for=condition=Complete", "ppj/plugin", "--timeout=180s", timeout=190)
    status = lab.job(namespace, "plugin")["status"]
    check(status["model"] == {"name": "two-layers", "layers": 8, "parameters": 256 * 64 * 2 + 6 * (64 * 64 + 64), "engine": "C"}, f"model: {status['model']}")
    check(float(status["progress"]["loss"]) < 5.0, f"loss {status['progress']['loss']} (ln 256 = 5.55 without training)")
    notes = [event["note"] for event in lab.events(namespace, "ModelDescribed")]
    check(notes == ["two-layers, 8 layers, 57728 parameters, C"], f"events: {notes}")


def test_a_missing_plugin_is_named(namespace):
    lab.apply(example("missing", "libother.so"), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Failed", "ppj/missing", "--timeout=120s", timeout=130)
    shown = lab.show_condition(lab.job(namespace, "missing"), "Failed")
    check("ConfigurationError" in shown and "libother.so: cannot open" in shown, shown)
