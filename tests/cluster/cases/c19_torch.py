# SPDX-License-Identifier: Apache-2.0
"""A stranger's story: a Llama of Hugging Face in a team's own image trains on four nodes by crds/examples/torch.yaml, another tenant
takes a link, and transformers opens the result. The job's losses are those of the same job without that tenant."""
import json
import subprocess
import time

import yaml

import jobs
import lab
from lab import check

LONG = {"test_a_llama_trains_under_preemption_and_is_opened_by_transformers"}
EXAMPLE = lab.ROOT / "crds" / "examples" / "torch.yaml"
FOLDER = lab.STATE / "torch"
IMAGE = "localhost/team:test"
STEPS, SEQUENCE, WIDTH = 120, 120, 128
STOLEN = "20mbit"   # a boundary tensor of 61 kB takes 25 ms, about as long as a stage computes for it
LIMIT = 600   # seconds of the whole story
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": 8,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 256, "tie_word_embeddings": True}
OPENS = """
import sys, transformers
model, told = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"], told
print(sum(p.numel() for p in model.parameters()))
"""


def environment():
    """The python of tests/setup torch, whose packages the pods mount: an image with torch of its own would only be larger."""
    with lab.machine_network():
        done = subprocess.run([lab.ROOT / "tests" / "setup", "torch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 77:
        raise lab.Skip(done.stderr.splitlines()[-1])
    check(done.returncode == 0, done.stderr[-500:])
    return done.stdout.split()[-1]


def example(name):
    """The example's job with this cluster's image, nodes and sizes."""
    job = yaml.safe_load(EXAMPLE.read_text())
    job["metadata"]["name"] = name
    spec = job["spec"]
    worker = spec["worker"]
    check(worker["command"] == ["weir-torch"] and "--export=hf" in worker["args"], f"the example's worker: {worker}")
    for key, value in {"--model": "hf:/models/llama", "--data": "/data/text.txt", "--seq": SEQUENCE, "--steps": STEPS}.items():
        [place] = [i for i, word in enumerate(worker["args"]) if word.startswith(f"{key}=")]
        worker["args"][place] = f"{key}={value}"
    worker["args"] += ["--seed=7", f"--loss-log=/ckpt/{name}.$(WEIR_POD_NAME).json"]
    worker.update(image=IMAGE, imagePullPolicy="Never", env=[{"name": "PYTHONPATH", "value": "/opt/torch"}])
    worker["volumes"] = [{"name": "in", "persistentVolumeClaim": {"claimName": "in"}}, {"name": "torch", "persistentVolumeClaim": {"claimName": "torch"}}]
    worker["volumeMounts"].append({"name": "torch", "mountPath": "/opt/torch", "readOnly": True})
    for group in spec["workerGroups"]:
        group["resources"] = {"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 1, "memory": "2Gi"}}   # one on each node, one thread
    spec["batch"] = {"globalBatchSize": 16, "microBatchSize": 1}
    return job


def prepare(namespace, python):
    lab.import_image("torch", jobs.NODES)
    lab.shared_claim(namespace, "in", FOLDER / "in")
    lab.shared_claim(namespace, "ckpt", FOLDER / "ckpt")
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, stdout=subprocess.PIPE, text=True)
    lab.claim(namespace, "torch", packages.stdout.strip())
    for path, text in {"models/llama/config.json": json.dumps(CONFIG), "data/text.txt": jobs.text_file().read_text()}.items():
        (FOLDER / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / "in" / path).write_text(text)


def completed(namespace, name):
    lab.kubectl("-n", namespace, "wait", "--for=condition=Complete", f"ppj/{name}", f"--timeout={LIMIT}s", timeout=LIMIT + 10)
    found = lab.losses(FOLDER / "ckpt", name)
    check(len(found) == STEPS, f"{name}: losses of {len(found)} steps")
    return [found[step] for step in sorted(found)]


def notes(namespace, reason, name):
    return [event["note"] for event in lab.events(namespace, reason, name)]


def test_a_llama_trains_under_preemption_and_is_opened_by_transformers(namespace):
    python = environment()
    prepare(namespace, python)
    installed = lab.install_chart()
    began = time.monotonic()
    lab.apply(example("smol"), namespace=namespace)
    lab.wait_until("20 steps", lambda: lab.step_of(namespace, "smol") >= 20, 180)
    stages = lab.stage_pods(namespace, lab.job(namespace, "smol"))
    lab.share_link(STOLEN, *stages[-2:])
    try:
        [retuned, *_] = lab.wait_until("PlanRetuned", lambda: notes(namespace, "PlanRetuned", "smol"), 240)
        taken = time.monotonic() - began
        loud = completed(namespace, "smol")
    finally:
        lab.clear_links(*jobs.NODES)
    model = lab.job(namespace, "smol")["status"]["model"]
    opened = subprocess.run([python, "-c", OPENS, str(FOLDER / "ckpt" / "smol" / "hf")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check(opened.returncode == 0, opened.stderr[-800:])
    story = installed + time.monotonic() - began
    check(story <= LIMIT, f"the story took {story:.0f} s")
    check(model["name"] == "LlamaForCausalLM" and model["layers"] == 10 and model["engine"].startswith("torch "), f"status.model: {model}")
    check(model["exported"] == "/ckpt/smol/hf", f"status.model: {model}")
    check(str(model["parameters"]) == opened.stdout.strip(), f"{model['parameters']} parameters trained, {opened.stdout.strip()} opened")
    [exported] = notes(namespace, "Exported", "smol")
    check(exported.startswith("/ckpt/smol/hf, ") and exported.endswith(f"step {STEPS}"), exported)
    [described] = notes(namespace, "ModelDescribed", "smol")
    check("LlamaForCausalLM, 10 layers" in described and "the bits of the whole model" in described, described)
    check(loud[-1] < loud[0] - 1, f"loss {loud[0]} -> {loud[-1]}")
    lab.apply(example("quiet"), namespace=namespace)
    check(completed(namespace, "quiet") == loud, "the tenant changed the losses")
    return f"install {installed:.0f} s, retuned after {taken:.0f} s ({retuned}), opened after {story:.0f} s; {described}; {exported}; loss {loud[0]:.2f} -> {loud[-1]:.2f}"
