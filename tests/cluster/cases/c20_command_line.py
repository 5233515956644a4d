# SPDX-License-Identifier: Apache-2.0
"""`kubectl weir` against the real API server: the program of the operator's image, as accounts with exactly role view or edit."""
import json
import os
import pathlib
import re
import stat
import time

import jobs
import lab
from lab import check

WIDTH = 120
FOLDER = lab.STATE / "command-line"
PROGRAM = FOLDER / "kubectl-weir"
CLUSTER = {"server": lab.API, "certificate-authority": str(lab.STATE / "pki" / "apiserver.crt")}
_seconds = []


def kubeconfig(name, namespace, user, cluster=None):
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "here",
              "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
              "clusters": [{"name": "c", "cluster": cluster or CLUSTER}], "users": [{"name": "u", "user": user}]}
    path = FOLDER / name
    path.write_text(json.dumps(config))   # JSON is YAML
    return path


def account(namespace, role):
    """A kubeconfig of a service account that has the cluster's role `role` in the namespace, and nothing else."""
    lab.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": role}},
              {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
               "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": namespace}]}, namespace=namespace)
    return kubeconfig(role, namespace, {"token": lab.kubectl("-n", namespace, "create", "token", role).strip()})


def weir(who, *arguments, code=0):
    """What the program prints: standard output, or the one line of an error."""
    begin = time.monotonic()
    done = lab.sh(PROGRAM, *arguments, "--kubeconfig", FOLDER / who, ok=None, timeout=60)
    _seconds.append(time.monotonic() - begin)
    told = f"kubectl weir {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stdout}{done.stderr}"
    check(done.returncode == code, told)
    check(arguments[0] == "logs" or all(len(line) <= WIDTH for line in done.stdout.splitlines()), f"a line is above {WIDTH} columns: {told}")
    check((done.stderr == "") == (code == 0) and done.stderr.count("\n") <= 1, told)
    return done.stdout if code == 0 else done.stderr.strip()


def has(text, *words):
    for word in words:
        check(word in text, f"no {word!r} in: {text}")
    return text


def shows(command, *words):
    """What the viewer's command prints of the job, if it has all words."""
    text = weir("view", command, "gpt")
    return text if all(word in text for word in words) else None


def step_lines(why):
    """Milliseconds of the lines of a step; the last one is the step, before it comes what is not explained."""
    rows = why[why.index("Where a step goes"):].splitlines()[1:]
    return [float(row.split()[-2]) for row in rows if row.startswith("  ")]


def test_accounts_with_the_default_roles(namespace):
    FOLDER.mkdir(parents=True, exist_ok=True)
    PROGRAM.write_bytes(lab.file_of_image("weir-operator", "kubectl-weir"))
    PROGRAM.chmod(PROGRAM.stat().st_mode | stat.S_IXUSR)
    account(namespace, "view")
    account(namespace, "edit")
    lab.wait_until("the roles have grown", lambda: lab.kubectl(
        "auth", "can-i", "list", "pipelinejobs.weir.dev", "-n", namespace, "--as", f"system:serviceaccount:{namespace}:view",
        ok=None).stdout.strip() == "yes", 30)
    check(weir("view", "top") == "no jobs\n", "top of an empty namespace")
    has(weir("view", "top", "-A", code=1), 'top needs "list pipelinejobs" in all namespaces: ask for role view')
    has(weir("view", "why", "gpt", code=1), f"no PipelineJob gpt in namespace {namespace}")


def test_a_job_that_waits(namespace):
    body = jobs.gpt_job("waits", 10, text=False)
    body["spec"]["workerGroups"][0]["nodeSelector"] = {"nvidia.com/gpu.product": "none-such"}
    lab.apply(*jobs.config_maps(jobs.emulated_profile(0.010, 0.020), text=False), namespace=namespace)
    lab.apply(body, namespace=namespace)
    lab.wait_until("the scheduler's words", lambda: "node" in lab.condition(lab.job(namespace, "waits"), "PodsScheduled")["message"]
                   and lab.condition(lab.job(namespace, "waits"), "PodsScheduled")["status"] == "False", 60)
    text = has(weir("view", "why", "waits"), "no step has been completed yet (Pending", "PodsScheduled", "group a100")
    has(weir("view", "logs", "waits", "--rank", "0", code=1), "no plan yet")
    has(weir("view", "plan", "waits"), "there is no plan yet")
    lab.kubectl("-n", namespace, "delete", "ppj", "waits", "--timeout=60s")
    lab.wait_until("its pods are gone", lambda: not lab.pods(namespace, "weir.dev/job-name=waits"), 60)
    return text.splitlines()[0]


def test_a_job_that_trains_as_a_viewer(namespace):
    body = jobs.gpt_job("gpt", 100000, text=False, micro_batches=8)
    body["spec"]["adaptation"]["mode"] = "Observe"
    lab.apply(body, namespace=namespace)
    lab.wait_until("a step in the status", lambda: lab.step_of(namespace, "gpt") > 0, 150)
    row = has(weir("view", "top"), "NAME  STATE", "OVER-BOUND").splitlines()[1].split()
    check(row[:2] == ["gpt", "Running"], f"{row}")
    ranks = weir("view", "top", "gpt").splitlines()
    check(len(ranks) == 2 + 4 and ranks[1].startswith("RANK  POD"), f"{ranks}")
    plan = has(weir("view", "plan", "gpt"), "gpt: plan ", "STAGE  LAYERS", "(Initial)")
    why = lab.wait_until("why tells where a step goes", lambda: shows("why", "Main cause  ", "Where a step goes"), 60, interval=2)
    [main] = [line for line in why.splitlines() if line.startswith("Main cause")]
    # Where other programs take the processors, workers wait for them, pause or compute slower, and that is told.
    check(any(words in main for words in ("the schedule itself", " pauses ", " waits for processors ", " compute")), why)
    has(why, "A step takes", "Main cause", "The operator")
    lines = step_lines(why)
    check(abs(sum(lines[:-1]) - lines[-1]) < 0.05, f"{lines} do not add up: {why}")
    check(abs(lines[-2]) < 0.2 * lines[-1], f"much is not explained: {why}")
    ranks = has(weir("view", "top", "gpt"), "BUSY", "LATE", "LINK", "FULL").splitlines()
    check(len(ranks) == 2 + 4 and ranks[2].count(" %") == 6, f"{ranks}")
    [pod, node] = ranks[2 + 3].split()[1:3]
    place = lab.stage_pods(namespace, lab.job(namespace, "gpt"))
    check(node in {name for name, _, _ in place}, f"{node} of {place}")
    log = [json.loads(line) for line in weir("view", "logs", "gpt", "--rank", "3", "--tail", "2").splitlines()]
    check(0 < len(log) <= 2 and all("msg" in line for line in log), f"{pod}: {log}")
    has(weir("view", "checkpoints", "gpt"), "nothing is saved")
    print("\n".join([why, plan, *ranks]), flush=True)
    return f"{sorted(_seconds)[-1]:.2f} s at most"


def test_a_viewer_changes_nothing(namespace):
    for command in (("suspend", "gpt"), ("resume", "gpt"), ("scale", "gpt", "1")):
        has(weir("view", *command, code=1), f'{command[0]} needs "patch pipelinejobs" in namespace {namespace}: ask for role edit')


def test_a_trace_of_three_steps_has_all_ops_of_all_ranks(namespace):
    has(weir("view", "trace", "gpt", code=1), f'trace needs "patch pipelinejobs" in namespace {namespace}: ask for role edit')
    file = FOLDER / "trace.json"
    told = has(weir("edit", "trace", "gpt", "--steps", "3", "-o", file), f"{namespace}/gpt: steps ", "of 4 of 4 ranks")
    slices = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
    ops = [(event["name"], event["args"]["step"], event["pid"], event["tid"]) for event in slices if event["cat"] in ("forward", "backward")]
    steps = {step for _, step, _, _ in ops}
    tracks = {track for *_, track in ops}
    check(len(steps) == 3 and len(tracks) == 4, f"steps {steps}, tracks {tracks}")
    wanted = {(f"{letter}{m}", step, 1, track) for letter in "FB" for m in range(8) for step in steps for track in tracks}
    check(len(ops) == len(wanted) and set(ops) == wanted, f"{len(ops)} ops, not {len(wanted)}: {sorted(wanted ^ set(ops))[:9]}")
    sent = sum(event["cat"] == "send" for event in slices)
    check(sent == 3 * 2 * 3 * 8, f"{sent} tensors")   # 3 links, both ways
    check("weir.dev/trace" not in lab.job(namespace, "gpt")["metadata"].get("annotations", {}), "the request is still there")
    [part] = [one["metadata"] for one in lab.api(f"/api/v1/namespaces/{namespace}/configmaps")["items"] if one["metadata"]["name"].startswith("gpt-trace-")]
    check(part["ownerReferences"][0]["name"] == "gpt" and "weir.dev/job-name" not in part["labels"], f"{part}")
    return told.splitlines()[0]


def test_why_names_the_link_that_a_tenant_takes_and_plan_what_the_change_brought(namespace):
    stages = lab.stage_pods(namespace, lab.job(namespace, "gpt"))
    lab.share_link("60mbit", stages[1], stages[2])   # 123 kB take 17 ms, a backward 20 ms
    why = lab.wait_until("why names the link", lambda: shows("why", "bit/s, usually", "at its usual rate", "last proposal"), 120,
                         interval=2, show=lambda: weir("view", "why", "gpt"))
    check(stages[1][0] in why and stages[2][0] in why, why)
    remedies = lab.job(namespace, "gpt")["status"]["performance"].get("remedies", [])
    promised = [1000 * float(one["savesSeconds"]) for one in remedies if one["text"].startswith("order ")]
    lab.kubectl("-n", namespace, "patch", "ppj", "gpt", "--type=merge", "-p", '{"spec":{"adaptation":{"mode":"Auto"}}}')
    plan = lab.wait_until("plan tells an outcome", lambda: shows("plan", "(Retune)", "kept: "), 180, interval=2,
                          show=lambda: weir("view", "plan", "gpt"))
    print(f"{why}\n{plan}\n{weir('view', 'why', 'gpt')}\n{weir('view', 'top')}", flush=True)
    before, after = re.search(r"step ([\d.]+) s -> ([\d.]+) s", lab.events(namespace, "PlanOutcome", "gpt")[-1]["note"]).groups()
    return f"another order: {''.join(f'{one:.0f} ms promised, ' for one in promised)}{1000 * (float(before) - float(after)):.0f} ms saved"


def test_why_names_the_rank_that_all_others_wait_for(namespace):
    """SIGSTOP of a worker: long before any deadline the condition, an event and `why` name it; when it goes on, so does training."""
    # Not worker 0, whose process coordinates: c08 has that. Where links differ it need not be rank 0.
    rank, name, node = next(row[:3] for row in (line.split() for line in weir("view", "top", "gpt").splitlines()[2 + 1:]) if row[1] != "gpt-a100-0")
    pod = next(one for one in lab.pods(namespace, "weir.dev/job-name=gpt") if one["metadata"]["name"] == name)
    wanted = f"3 ranks wait for rank {rank} (replica 0, stage {rank}, {node}), which does not answer"
    begin = time.monotonic()
    lab.signal_container(pod, "STOP")
    try:
        ready = lab.wait_until("Ready names the rank", lambda: next(
            (one for one in [lab.condition(lab.job(namespace, "gpt"), "Ready")] if one["reason"] == "Stalled"), None), 75)
        took = time.monotonic() - begin
        check(ready["status"] == "False" and ready["message"].startswith("no step after step ") and ready["message"].endswith(wanted), f"{ready}")
        why = has(weir("view", "why", "gpt"), "(Stalled: no step after step ", f"3 ranks wait for rank {rank}", "Last step", "Stalled ")
    finally:
        lab.signal_container(pod, "CONT")
    lab.wait_until("Running again", lambda: lab.condition(lab.job(namespace, "gpt"), "Ready")["reason"] == "Running", 90)
    step = lab.reported_step(namespace, "gpt")
    lab.wait_until("steps come again", lambda: lab.reported_step(namespace, "gpt") > step, 60)
    check(lab.job(namespace, "gpt")["status"].get("restarts", 0) == 0, "a worker that came back was made again")
    file = FOLDER / "flight.json"   # a viewer gets what the others did then; two dumps are told of: of a stall, of the loss
    told = has(weir("view", "trace", "gpt", "--flight", "-o", file), "gpt: ", " ago: ", " of 4 ranks")
    check(any(reason in told for reason in ("no step for ", "is lost after step ", " took ")), told)
    check(any(event["ph"] == "X" for event in json.loads(file.read_text())["traceEvents"]), told)
    check(lab.events(namespace, "FlightRecorded", "gpt"), "no event FlightRecorded")
    print(why, told, sep="\n", flush=True)
    return f"named after {took:.0f} s"


def test_an_editor_scales_suspends_and_resumes(namespace):
    has(weir("edit", "scale", "gpt", "3", code=1), "scale gpt: the API server refuses: ")   # 3 does not divide the batch
    has(weir("edit", "scale", "gpt", "1"), "gpt: 1 replica is asked for")
    has(weir("edit", "suspend", "gpt"), "it saves nothing (spec.checkpoint)")
    lab.wait_until("Suspended", lambda: lab.condition(lab.job(namespace, "gpt"), "Suspended")["status"] == "True", 60)
    has(weir("view", "why", "gpt"), "(Suspended")
    has(weir("edit", "resume", "gpt"), "gpt: resumes")
    check(not lab.job(namespace, "gpt")["spec"].get("suspend"), "the job is still suspended")


def test_kubeconfigs_of_clouds(namespace):
    """An exec plugin, and a server whose certificate has another name than its address, in a root without any other file."""
    token = json.loads((FOLDER / "view").read_text())["users"][0]["user"]["token"]
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never"}
    kubeconfig("plugin", namespace, {"exec": {**plugin, "args": ["-c", f"echo '{json.dumps(answer)}'"]}})
    has(weir("plugin", "top"), "gpt")
    kubeconfig("expired", namespace, {"exec": {**plugin, "args": ["-c", "echo 'session has expired' >&2; exit 255"]}})
    has(weir("expired", "top", code=2), "users[u]: sh ended with 255: session has expired")
    root = FOLDER / "root"
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "kubectl-weir").write_bytes(PROGRAM.read_bytes())
    (root / "kubectl-weir").chmod(0o755)
    (root / "etc" / "hosts").write_text("10.210.0.1 api.test\n")
    (root / "ca.crt").write_text(pathlib.Path(CLUSTER["certificate-authority"]).read_text())
    other = {"server": "https://api.test:6443", "certificate-authority": "ca.crt", "tls-server-name": "10.210.0.1"}
    os.replace(kubeconfig("named", namespace, {"token": token}, other), root / "config")
    has(lab.sh("chroot", root, "/kubectl-weir", "--kubeconfig", "/config", "top"), "gpt")


def test_a_trace_of_one_replica(namespace):
    lab.kubectl("-n", namespace, "delete", "pipelinejob", "gpt", "--wait")
    lab.apply(*jobs.replicas_maps("n4", 0.010, 0.020), namespace=namespace)
    lab.apply(jobs.replicas_job("pair", 2, 5000), namespace=namespace)
    lab.wait_until("both replicas train", lambda: lab.step_of(namespace, "pair") > 5, 120,
                   show=lambda: lab.show_condition(lab.job(namespace, "pair"), "Ready"))
    has(weir("edit", "trace", "pair", "--replica", "2", code=1), "--replica: pair has the replicas 0 to 1, found 2")
    file = FOLDER / "pair.json"
    told = has(weir("edit", "trace", "pair", "--replica", "1", "--steps", "2", "-o", file), f"{namespace}/pair: steps ", "of 2 of 2 ranks")
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X" and event["cat"] in ("forward", "backward")]
    check({event["pid"] for event in events} == {2}, f"replica 1 is process 2: {set(event['pid'] for event in events)}")
    check(len({event["tid"] for event in events}) == 2 and len({event["args"]["step"] for event in events}) == 2, told)
    both = has(weir("edit", "trace", "pair", "--steps", "1", "-o", file), "of 4 of 4 ranks")
    check({event["pid"] for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"} >= {1, 2}, both)
    return told.splitlines()[0]


def cleanup(_):
    lab.clear_links(*jobs.NODES)
