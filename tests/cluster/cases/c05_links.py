# SPDX-License-Identifier: Apache-2.0
"""Link bandwidth as the workers export it, by Prometheus, beside iperf3 through the same shaped port: 1 MB messages."""
import json
import time

import jobs
import lab
from lab import check

RATES = (100, 200, 500, 1000)   # Mbit/s
JUDGED = (100, 200, 500)        # 1000 is recorded: two cores carry the shaper and both ends
TOLERANCE = 0.05
WINDOW = 15                     # seconds of training per rate
NOISY = 0.001                   # seconds; an emulated op that wakes up later than this, at 99 %, tells of a busy machine
found = {}


def iperf3(namespace, client, server, rate):
    """Mbit/s of payload from one node to another, received."""
    lab.clear_links(client, server)
    lab.script("shape.sh", server, "rate", f"{rate}mbit")
    name = f"client-{rate}"
    address = lab.get(f"/api/v1/namespaces/{namespace}/pods/server")["status"]["podIP"]
    lab.apply(lab.iperf3_pod(name, client, "-c", address, "-t", "6", "-O", "1", "-J"), namespace=namespace)
    lab.wait_until(f"iperf3 at {rate} Mbit/s ends", lambda: lab.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"] in ("Succeeded", "Failed"), 40)
    text = lab.wait_until(f"the log of {name}", lambda: lab.kubectl("-n", namespace, "logs", name, ok=None).stdout, 20)
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e6


def test_iperf3_through_the_shaped_port(namespace):
    lab.apply(lab.iperf3_pod("server", "n3", "-s", "--forceflush"), namespace=namespace)
    lab.wait_until("the iperf3 server listens", lambda: "listening" in lab.kubectl("-n", namespace, "logs", "server", ok=None).stdout, 30)
    for rate in RATES:
        found[rate] = iperf3(namespace, "n1", "n3", rate)
    lab.clear_links("n1", "n3")
    return ", ".join(f"{rate}: {value:.1f}" for rate, value in found.items()) + " Mbit/s"


def wide_profile():
    """Emulated compute of the mlp, 40 ms forward and 80 ms backward a stage: the cores are left to the network."""
    layers = ["embed", *(f"hidden{i}" for i in range(6)), "head"]
    times = {"A100": [{"samples": 16, "forward": 0.010, "backward": 0.020, "update": 0.0}]}
    nodes = [{"id": layer, "parameterBytes": 66048, "outputBytesPerSample": 65536, "times": times} for layer in layers]
    return {"apiVersion": "weir.dev/profile/v1", "model": "mlp", "scaling": "proportional", "nodes": nodes}


def wide_job():
    """Two stages of the mlp on the A100 nodes n1 and n3; 16 x 128 tokens x 128 channels x 4 B = 1 MB a message."""
    job = jobs.gpt_job("wide", 100000, text=False)
    spec = job["spec"]
    spec["parallelism"] = {"stages": 2}
    spec["worker"]["args"] = ["--model=mlp", "--steps=100000", "--seq=128"]
    spec["workerGroups"] = [jobs.group("a100", 2)]
    spec["batch"] = {"globalBatchSize": 128, "microBatchSize": 16}
    spec["adaptation"] = {"mode": "Off"}
    return job


def test_workers_probe_the_link_before_the_first_plan(namespace):
    """Both ports are limited before the job starts: the first plan must not count with a free link."""
    rate = RATES[0]
    for node in ("n1", "n3"):
        lab.script("shape.sh", node, "rate", f"{rate}mbit")
    lab.apply(*jobs.config_maps(wide_profile(), text=False), wide_job(), namespace=namespace)
    lab.kubectl("-n", namespace, "wait", "--for=condition=Ready", "ppj/wide", "--timeout=120s", timeout=130)
    lines = [json.loads(line) for line in lab.kubectl("-n", namespace, "logs", "wide-a100-0").splitlines() if "link to a neighbour" in line]
    check(len(lines) == 1, f"the worker said of its link: {lines}")
    megabits = float(lines[0]["bytes_per_second"]) * 8e-6
    check(0.7 * found[rate] < megabits < 1.1 * found[rate], f"{megabits:.1f} Mbit/s, iperf3 {found[rate]:.1f}")
    return f"{megabits:.1f} Mbit/s, iperf3 {found[rate]:.1f}; round trip {1000 * float(lines[0]['rtt_seconds']):.2f} ms"


def test_exported_bandwidth_is_within_5_percent_of_iperf3(namespace):
    check(found, "iperf3 gave no numbers")
    stages = lab.stage_pods(namespace, lab.job(namespace, "wide"))
    (sender, _, _), (receiver, _, _) = stages
    selector = f'{{pipeline_namespace="{namespace}",pipeline_job="wide",link="0-1",dir="fwd"}}'
    query = f"8e-6 * sum(increase(weir_link_bytes_total{selector}[{WINDOW}s])) / sum(increase(weir_link_busy_seconds_total{selector}[{WINDOW}s]))"
    seen, wrong, noise = {}, [], []
    for rate in RATES:
        for node in (sender, receiver):
            lab.script("shape.sh", node, "rate", f"{rate}mbit")
        for attempt in range(3):
            time.sleep(WINDOW + 4)   # the window holds this rate only: 3 s for what was under way, 1 s for the scrape
            seen[rate] = lab.wait_until("a bandwidth in Prometheus", lambda: lab.prometheus_value(query), 20)
            off = seen[rate] / found[rate] - 1
            late = lab.lateness_p99(namespace, "wide", WINDOW) or 0
            if rate not in JUDGED or abs(off) <= TOLERANCE:
                break
            if late <= NOISY or attempt == 2:
                (noise if late > NOISY else wrong).append(f"{rate}: {seen[rate]:.1f} Mbit/s, iperf3 {found[rate]:.1f} ({100 * off:+.1f} %), "
                                                          f"lateness p99 {late * 1000:.1f} ms")
                break
    check(not wrong, "; ".join(wrong))
    if noise:
        raise lab.Skip(f"NOISY (limit {NOISY * 1000:.0f} ms), result not judged: {'; '.join(noise)}")
    return ", ".join(f"{rate}: {value:.1f} ({100 * (value / found[rate] - 1):+.1f} %)" for rate, value in seen.items())


def test_a_pipeline_that_idles_does_not_make_a_link_look_slow(namespace):
    """At the highest rate the link is idle most of the time; plain bytes per second would show that as a loss."""
    check(found, "iperf3 gave no numbers")
    selector = f'{{pipeline_namespace="{namespace}",pipeline_job="wide",link="0-1",dir="fwd"}}'
    plain = lab.prometheus_value(f"8e-6 * sum(rate(weir_link_bytes_total{selector}[{WINDOW}s]))")
    busy = lab.prometheus_value(f"8e-6 * sum(rate(weir_link_bytes_total{selector}[{WINDOW}s])) / sum(rate(weir_link_busy_seconds_total{selector}[{WINDOW}s]))")
    check(plain < 0.8 * found[1000], f"the link is not idle: {plain:.0f} Mbit/s")
    late = lab.lateness_p99(namespace, "wide", WINDOW) or 0
    if busy <= 0.8 * found[1000] and late > NOISY:
        raise lab.Skip(f"NOISY: lateness p99 {late * 1000:.1f} ms; {busy:.0f} Mbit/s per busy second, iperf3 {found[1000]:.0f}")
    check(busy > 0.8 * found[1000], f"{busy:.0f} Mbit/s per busy second, iperf3 {found[1000]:.0f}")
    return f"{plain:.0f} Mbit/s on average, {busy:.0f} per busy second"


def cleanup(_):
    lab.clear_links("n1", "n2", "n3", "n4")
