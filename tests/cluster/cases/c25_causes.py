# SPDX-License-Identifier: Apache-2.0
"""What makes steps slow is named by status and `kubectl weir why`, and a remedy saves what it promised. In mode Observe the operator changes nothing."""
import datetime
import json
import re
import stat
import time

import jobs
import lab
from lab import check

FOLDER = lab.STATE / "causes"
PROGRAM = lab.STATE / "command-line-causes"
LONG = {"test_a_low_cpu_limit_and_its_end", "test_a_shaped_port_and_its_end", "test_a_slow_save_and_the_same_job_without"}
FORWARD, BACKWARD = 0.020, 0.040   # seconds of a stage; a step takes 660 ms
SLOW_NODE, LATE_NODE = "n2", "n4"
SLOWNESS, DEVICE_STEPS = 2.5, 22   # how slow the slow node is, and for how many steps
LATE_SAMPLE = 0.0125               # seconds: 50 ms a micro-batch, beside 60 ms of compute
LATE_COPY = 1.5                    # seconds, of a save each 5 steps
LIMITED_NODE, CPU, LOW_CPU = "n3", "1", "80m"   # of a worker that needs some 110 ms of it for a step
LEAST = 0.05                       # of a step, for a cause that is taken for the one that was made
NOISY = 0.005                      # seconds; emulated compute that wakes up later than this, at 99 %, tells of a busy machine
SETTLED = 6                        # seconds: one report later
DATA = {}                          # cost that was told and step with late data, for the job that tells what is true
USUAL = []                         # seconds of a step without any fault
PREPARED = []                      # namespace, once its volume and profile are there


def prepare(namespace):
    if PREPARED:
        return
    PREPARED.append(namespace)
    PROGRAM.write_bytes(lab.file_of_image("weir-operator", "kubectl-weir"))
    PROGRAM.chmod(PROGRAM.stat().st_mode | stat.S_IXUSR)
    lab.shared_claim(namespace, "ckpt", FOLDER)
    [emulation] = jobs.config_maps(jobs.emulated_profile(FORWARD, BACKWARD), text=False)
    for node in jobs.NODES:
        slowness = f"1 {SLOWNESS}\n{DEVICE_STEPS + 1} 1\n" if node == SLOW_NODE else "1 1\n"
        emulation["data"][f"slow-{node}.txt"] = slowness
    lab.apply(emulation, namespace=namespace)


def group(stage, delay, args, computes):
    """The worker of that stage, on the node that has its number. Where it only sleeps, other programs of the machine hardly change its times."""
    node = jobs.NODES[stage]
    [name] = [name for name, (product, _) in jobs.DEVICES.items() if lab.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]["nvidia.com/gpu.product"] == product]
    entry = jobs.group(name, 1)
    entry["name"] = f"stage-{stage}"
    entry["nodeSelector"] = {"kubernetes.io/hostname": node}
    entry["stageRange"] = {"first": stage, "last": stage}
    entry["resources"] = {"limits": {"nvidia.com/gpu": 1, "cpu": CPU}, "requests": {"cpu": CPU}}   # a weight beside what else this machine does
    [trainer] = entry["template"]["spec"]["containers"]
    trainer["env"].append({"name": "DELAY", "value": str(delay)})
    trainer["args"] = [*args, *([] if computes else ["--emulate-idle"])]
    return entry


def start(namespace, name, *args, delayed=None, delay=0, computes=None, **spec):
    """A job that trains until it is deleted; stage s is on node s + 1. Options that name $(DELAY) get it on the node `delayed`, others 0; on the node
    `computes` the arithmetic is done, too."""
    prepare(namespace)
    body = jobs.gpt_job(name, 100000, text=False, micro_batches=8, args=[f"--log-dir=/ckpt/{name}-log", *args], **spec)
    args = body["spec"]["worker"]["args"]
    body["spec"]["workerGroups"] = [group(stage, delay if node == delayed else 0, args, node == computes) for stage, node in enumerate(jobs.NODES)]
    spec = body["spec"]
    spec["adaptation"]["mode"] = "Observe"
    spec["model"] = {"profile": {"source": "ConfigMap", "configMap": {"name": "emulation"}}}
    spec["worker"]["volumes"].append({"name": "ckpt", "persistentVolumeClaim": {"claimName": "ckpt"}})
    spec["worker"]["volumeMounts"].append({"name": "ckpt", "mountPath": "/ckpt"})
    lab.apply(body, namespace=namespace)
    lab.wait_until(f"{name} trains", lambda: steps_of(name), 120, show=lambda: lab.show_condition(lab.job(namespace, name), "Ready"))
    places = [place[0] for place in lab.stage_pods(namespace, lab.job(namespace, name))]
    check(places == list(jobs.NODES), f"stages are on {places}")


def end(namespace, name):
    lab.kubectl("-n", namespace, "delete", "ppj", name, "--timeout=60s")
    lab.wait_until("its pods are gone", lambda: not lab.pods(namespace, f"weir.dev/job-name={name}"), 60)


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def steps_of(name):
    """(number, when it ended) of the steps that the coordinator wrote down; the last line may be torn."""
    file = FOLDER / f"{name}-log" / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(row["step"], seconds_of(row["time"])) for row in rows if "stepSeconds" in row]


def mean_step(name, choose):
    """Seconds of a step over those that are chosen by (number, end)."""
    chosen = [row for row in steps_of(name) if choose(*row)]
    check(len(chosen) >= 5, f"{len(chosen)} steps of {name} to be measured")
    return (chosen[-1][1] - chosen[0][1]) / (chosen[-1][0] - chosen[0][0])


def later(step, _):
    """Steps after those in which a job begins."""
    return step > 3


def wait_steps(name, count):
    """Waits for so many more steps."""
    until = steps_of(name)[-1][0] + count
    lab.wait_until(f"step {until} of {name}", lambda: steps_of(name)[-1][0] >= until, 90)


def why(namespace, name):
    return lab.sh(PROGRAM, "why", name, "-n", namespace, "--kubeconfig", lab.STATE / "kube" / "admin", ok=None, timeout=60).stdout


def named(namespace, name, kinds, node, since=0.0, timeout=75):
    """(seconds it costs, what `why` says) once the cause of that kind and node is the main one, by steps that were reported after `since`."""
    def probe():
        status = lab.job(namespace, name).get("status", {})
        told = status.get("performance", {})
        right = told.get("cause") in kinds and re.search(rf"\b{node}\b", told["causeText"]) and seconds_of(status["progress"]["lastReportTime"]) > since
        return told if right and float(told["causeSeconds"]) > LEAST * float(told["stepMilliseconds"]) / 1000 else None
    told = lab.wait_until(f"{name}: {kinds} of {node} is named", probe, timeout, show=lambda: why(namespace, name))
    text = why(namespace, name)
    [main] = [line for line in text.splitlines() if line.startswith("Main cause")]
    check(told["causeText"].split(" (")[0] in main, f"{told['causeText']!r} is not in {main!r}")
    return float(told["causeSeconds"]), text


def promise(namespace, name, what, promised, saved):
    """Tells what was promised beside what it was. A shared machine makes all times scatter, so a factor of two is asked for, and nothing where sleeps
    end late."""
    text = f"{what}: {1000 * promised:.0f} ms promised, {1000 * saved:.0f} ms saved ({100 * (saved / promised - 1):+.0f} %)"
    late = lab.lateness_p99(namespace, name, 60) or 0
    print(f"{text}; sleeps end {1000 * late:.1f} ms late (p99)", flush=True)
    if not promised / 2 <= saved <= 2 * promised:
        if late > NOISY:
            raise lab.Skip(f"named, but the machine is too busy to judge what it saves (sleeps end {1000 * late:.0f} ms late): {text}")
        raise lab.Failure(text)
    return text


def limit_cpu(namespace, pod, cpu):
    """What an administrator, or an autoscaler, does in place: the container keeps running."""
    resources = {"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}
    lab.kubectl("-n", namespace, "patch", "pod", pod, "--subresource=resize", "--type=strategic", "-p",
                json.dumps({"spec": {"containers": [{"name": "trainer", "resources": resources}]}}))


def test_a_slow_device_then_late_data(namespace):
    """One node computes more slowly for some steps. Another one always reads its samples late, which hides behind the first one until that ends."""
    start(namespace, "faults", "--emulate-slowness=/emulation/slow-$(WEIR_NODE_NAME).txt", "--emulate-data-delay=$(DELAY)", delayed=LATE_NODE, delay=LATE_SAMPLE)
    slow, text = named(namespace, "faults", {"SlowDevice"}, SLOW_NODE)
    print(text, flush=True)
    lab.wait_until("the device is as fast as others", lambda: steps_of("faults")[-1][0] > DEVICE_STEPS + 1, 60)
    data, text = named(namespace, "faults", {"Data"}, LATE_NODE)
    print(text, flush=True)
    DATA.update(cost=data, step=mean_step("faults", lambda step, _: step > DEVICE_STEPS + 2))
    told = promise(namespace, "faults", "slow device", slow, mean_step("faults", lambda step, _: 3 < step <= DEVICE_STEPS) - DATA["step"])
    end(namespace, "faults")
    return told


def usual(namespace):
    """A job without faults, which saves each 5 steps: it trains on."""
    if not USUAL:
        start(namespace, "usual", computes=LIMITED_NODE, checkpoint={"path": "/ckpt/usual", "intervalSteps": 5, "graceSeconds": 10})
        wait_steps("usual", 25)
        USUAL.append(mean_step("usual", later))
        print(f"a usual step takes {1000 * USUAL[0]:.0f} ms\n{why(namespace, 'usual')}", flush=True)
    return USUAL[0]


def apply_and_lift(namespace, what, kinds, node, begin, lift):
    """Begins a fault of the job without any, and ends it once it is named; what the end saves beside what was promised."""
    usual(namespace)
    wait_steps("usual", 8)   # others follow on what the case before has done
    begin()
    begun = time.time()
    try:
        named(namespace, "usual", kinds, node, begun + SETTLED)
        wait_steps("usual", 8)
        costs, text = named(namespace, "usual", kinds, node, time.time())   # by the mean of more steps
    finally:
        lift()
    lifted = time.time()
    print(text, flush=True)
    wait_steps("usual", 20)
    slow = mean_step("usual", lambda _, when: begun + 2 < when < lifted)
    return promise(namespace, "usual", what, costs, slow - mean_step("usual", lambda _, when: when > lifted + 2))


def test_a_low_cpu_limit_and_its_end(namespace):
    usual(namespace)
    [pod] = [pod for node, _, pod in lab.stage_pods(namespace, lab.job(namespace, "usual")) if node == LIMITED_NODE]
    return apply_and_lift(namespace, "CPU limit", {"CpuLimit"}, LIMITED_NODE, lambda: limit_cpu(namespace, pod, LOW_CPU),
                          lambda: limit_cpu(namespace, pod, CPU))


def test_a_shaped_port_and_its_end(namespace):
    usual(namespace)
    stages = lab.stage_pods(namespace, lab.job(namespace, "usual"))
    return apply_and_lift(namespace, "shaped port", {"SlowLink", "SlowPort"}, stages[1][0], lambda: lab.share_link("20mbit", stages[1], stages[2]),
                          lambda: lab.clear_links(*jobs.NODES))


def test_a_slow_save_and_the_same_job_without(namespace):
    if USUAL:
        end(namespace, "usual")
    checkpoint = {"intervalSteps": 5, "graceSeconds": 10}
    start(namespace, "saves", "--emulate-save-delay=$(DELAY)", delayed=LATE_NODE, delay=LATE_COPY, checkpoint={"path": "/ckpt/saves", **checkpoint})
    costs, text = named(namespace, "saves", {"SlowSave"}, LATE_NODE)
    print(text, flush=True)
    wait_steps("saves", 10)
    end(namespace, "saves")
    start(namespace, "mended", "--emulate-save-delay=$(DELAY)", checkpoint={"path": "/ckpt/mended", **checkpoint})
    wait_steps("mended", 25)
    mended = mean_step("mended", later)
    told = [promise(namespace, "mended", "slow save", costs, mean_step("saves", later) - mended)]
    if DATA:
        told.append(promise(namespace, "mended", "late data", DATA["cost"], DATA["step"] - mended))
    return "; ".join(told)


def cleanup(_):
    lab.clear_links(*jobs.NODES)
