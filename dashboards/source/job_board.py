# SPDX-License-Identifier: Apache-2.0
"""The board of one PipelineJob. Each row is a question of its user; only the first is open."""
from blocks import Board, annotation, bars, events, lines, of_query, override, stat, steps, table, target, timeline, variable, words

JOB = 'pipeline_namespace="$namespace",pipeline_job="$pipelinejob"'
KEY = "pipeline_namespace, pipeline_job"


def of(metric, after="", **labels):
    """The metric of this job, with what follows the selector; a value that begins with ~ is a regular expression."""
    more = "".join(f',{name}=~"{value[1:]}"' if value.startswith("~") else f',{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{JOB}{more}}}{after}"


def rate(metric, **labels):
    return f"rate({of(metric, '[$__rate_interval]', **labels)})"


def increase(metric, window="$__range"):
    return f"increase({of(metric, f'[{window}]')})"


def condition(kind, after=""):
    return f"max({of('weir_job_condition', after, condition=kind, status='True')})"


def reason(kind):
    """The reason of a condition as label, with 1 if the condition is true, else 0."""
    return f"max by (reason) ({of('weir_job_condition_reason', condition=kind)}) * on () group_left () {condition(kind)}"


STEP_TIME = f"max({rate('weir_iteration_seconds_sum')} / ({rate('weir_iteration_seconds_count')} > 0))"
STEPS_A_SECOND = f"max({rate('weir_iteration_seconds_count')})"
REPLICAS = f"count(count by (replica) ({of('weir_sync_staleness')}))"
REPLICATED = f"and on () ({REPLICAS} > 1)"


# --- is it healthy ----------------------------------------------------------------------------------------------------

def health():
    predicted = f"max({of('weir_job_plan_predicted_step_seconds')})"
    bound = of("weir_job_plan_bound_percent", step="simulated")
    return (
        stat("State", "Does it train? The reason of condition Ready, as in column STATE of `kubectl get ppj`.",
             [target(reason("Ready"), "{{reason}}", instant=True)],
             5, thresholds=steps(("red", None), ("green", 1)), text="name", noValue="the operator does not tell"),
        stat("Slower than planned?", "The reason of condition Degraded. Orange: something costs time now, and the reason names it; "
             "`kubectl describe ppj` has its sentence.", [target(reason("Degraded"), "{{reason}}", instant=True)],
             5, thresholds=steps(("green", None), ("orange", 1)), text="name", noValue="the operator does not tell"),
        stat("Above the bound", "How much longer a measured step takes than no order of tasks on these devices and links could beat. What is left is "
             "the bubble of the schedule, slow links, and waiting.", [target(f"max({of('weir_job_plan_bound_percent', step='measured')})",
                                                                             "above the bound")],
             4, unit="percent", decimals=0, thresholds=steps(("green", None), ("yellow", 20), ("orange", 40)), noValue="not known"),
        stat("Progress", "Completed steps, and how many the job is to do.",
             [target(f"max({of('weir_step')})", "steps done"), target(f"max({of('weir_job_target_steps')})", "of")], 4, noValue="no step yet"),
        stat("Time left", "At the present rate of steps.", [target(
            f"clamp_min(max({of('weir_job_target_steps')}) - max({of('weir_step')}), 0) / ({STEPS_A_SECOND} > 0)", "left")],
             3, unit="dtdurations", decimals=0, noValue="no step now"),
        stat("Samples/s", "Of completed steps, all replicas together.", [target(f"sum({rate('weir_samples_total')})", "samples")],
             3, unit="none", decimals=1, noValue="no step yet"),
        lines("Time of a step", "Measured by the workers; predicted by the operator's simulator for the plan in force; and the bound that no order "
                                "of tasks can "
              "beat. Measured above predicted: the network or a device has changed. Predicted above bound: the schedule's bubble.",
              [target(STEP_TIME, "measured"), target(predicted, "predicted"),
               target(f"{predicted} / (1 + max({bound}) / 100)", "bound of any order")],
              14, 9, "s", noValue="no step in this time", overrides=[
                  override("measured", color={"mode": "fixed", "fixedColor": "blue"}, custom__lineWidth=2),
                  override("predicted", color={"mode": "fixed", "fixedColor": "orange"}, custom__lineStyle={"fill": "dash", "dash": [8, 6]}),
                  override("bound of any order", color={"mode": "fixed", "fixedColor": "green"}, custom__lineStyle={"fill": "dot", "dash": [2, 6]})]),
        lines("How far from the bound", "The same in percent: the step that the simulator expects of this plan, and the measured one. A job with "
                                        "sync.mode Partial has "
              "no single step to compare.", [target(f"max by (step) ({of('weir_job_plan_bound_percent')})", "{{step}}")], 10, 9, "percent", min=0,
              overrides=[override("measured", color={"mode": "fixed", "fixedColor": "blue"}),
                         override("simulated", color={"mode": "fixed", "fixedColor": "orange"})],
              noValue="Not known in the first steps, and with sync.mode Partial."),
    )


# --- what the operator did --------------------------------------------------------------------------------------------

REVISION = f'count_values by ({KEY}) ("revision", max by ({KEY}) ({of("weir_job_plan_applied_revision")} > 0))'
K = f'count_values by ({KEY}) ("k", max by ({KEY}) ({of("weir_job_plan_k")}))'
IN_RANGE = "[$__range:$__interval]"


def gain(kind):
    return f"max({of('weir_job_plan_gain_percent', gain=kind)})"


NEWEST = REVISION.replace("weir_job_plan_applied_revision", "weir_job_plan_revision")


def of_revision(value, over="last_over_time", revision=NEWEST):
    """A value by revision, over the range of the board. k, prediction and gains are those of the newest plan, which is in force a moment later."""
    return f"max by (revision) ({over}(({revision} * on () group_left () {value}){IN_RANGE}))"


def operator_row():
    state = {"Ready": ("not training", "red", "training", "green"), "Degraded": ("as planned", "green", "slower than planned", "orange"),
             "NetworkMetricsAvailable": ("not measured", "yellow", "measured", "green"), "ReplanInProgress": ("in force", "transparent", "on its way",
                                                                                                              "blue")}
    names = {"Ready": "training", "Degraded": "speed", "NetworkMetricsAvailable": "links", "ReplanInProgress": "newest plan"}
    return (
        timeline("State of the job", "Conditions Ready, Degraded, NetworkMetricsAvailable and ReplanInProgress over time; `kubectl describe ppj` "
                                     "tells their reasons.",
                 [target(condition(kind), names[kind]) for kind in state], height=6, noValue="the operator does not tell",
                 overrides=[override(names[kind], mappings=[words(_0=(no, of_no), _1=(yes, of_yes))]) for kind,
                            (no, of_no, yes, of_yes) in state.items()]),
        timeline("Plans", "The plan in force, its k (groups of kFkB: k = 1 is 1F1B), and the gain in throughput over the plan before: as predicted "
                          "when it was chosen, and as measured later.",
                 [target(f"max({of('weir_job_plan_applied_revision')})", "plan"), target(f"max({of('weir_plan_k')})", "k"),
                  target(gain("predicted"), "predicted gain"), target(gain("measured"), "measured gain")],
                 height=6, color={"mode": "palette-classic"}, noValue="no plan yet",
                 overrides=[of_query("A", color={"mode": "fixed", "fixedColor": "blue"}),
                            of_query("B", color={"mode": "fixed", "fixedColor": "purple"}),
                            of_query("C", unit="percent", decimals=1, color={"mode": "fixed", "fixedColor": "orange"}),
                            of_query("D", unit="percent", decimals=1, color={"mode": "fixed", "fixedColor": "green"})]),
        table("Plans and their gains", "Each plan that was in force in this time. A gain is more throughput than with the plan before; empty: not "
                                       "predicted (the first plan, a restart) or not judged yet.",
              [("in force since", of_revision("vector(1) * time() * 1000", "min_over_time", REVISION), {"unit": "dateTimeAsIso"}),
               ("k", of_revision(f"max({of('weir_job_plan_k')})"), {"unit": "none"}),
               ("step predicted", of_revision(f"max({of('weir_job_plan_predicted_step_seconds')})"), {"unit": "s"}),
               ("gain predicted", of_revision(gain("predicted")), {"unit": "percent", "decimals": 1}),
               ("gain measured", of_revision(gain("measured")), {"unit": "percent", "decimals": 1})],
              15, 8, keys=[("revision", "plan")], sort="in force since", descending=True, noValue="–"),
        events("Changes", "Plans by what happened to them: applied, refused by the workers, rolled back because they were worse, or proposed only "
                          "(adaptation.mode Observe).",
               of("weir_job_plan_changes_total"), "tier, outcome", width=9, noValue="No plan was changed in this time."),
    )


# --- which link -------------------------------------------------------------------------------------------------------

RATIO = f"min by (from_node, to_node) ({of('weir_job_link_bandwidth_ratio')})"
LINK = "replica, link, dir, from_node, to_node"


def by_link(metric, more="", at=""):
    return f"sum by ({more}{LINK}) (rate({of(metric, '[$__rate_interval]' + at)}))"



def bandwidth(at=""):
    return f"8 * {by_link('weir_link_bytes_total', at=at)} / ({by_link('weir_link_busy_seconds_total', at=at)} > 0)"


def link_row():
    slowest = f"bottomk(10, {bandwidth(' @ end()')})"
    worst = f"bottomk(10, min by (from_node, to_node) (avg_over_time({of('weir_job_link_bandwidth_ratio')}[$__range] @ end())))"
    colours = steps(("dark-red", None), ("red", 0.25), ("orange", 0.5), ("yellow", 0.7), ("green", 0.85))
    return (
        stat("Slowest link now", "The smallest part of its usual bandwidth that a link has now. It costs time only if the plan cannot hide it: see "
                                 "whether the job is slower than planned.",
             [target(f"clamp_max(min({of('weir_job_link_bandwidth_ratio')}), 1)", "of its usual")], 5, unit="percentunit", decimals=0,
             thresholds=colours,
             noValue="no link has a usual bandwidth yet"),
        stat("Links below half", "Pairs of nodes with less than half of their usual bandwidth.", [target(
            f"count({RATIO} < 0.5) or vector(0)", "links")], 5, thresholds=steps(("green", None), ("orange", 1))),
        stat("Age of the measurements", "Time since the newest sample that the operator has of a link. It retunes with fresh ones only.",
             [target(f"max({of('weir_job_metrics_age_seconds')})", "age")], 5, unit="s", decimals=0, thresholds=steps(("green", None), ("orange", 30),
                                                                                                                      ("red", 60)),
             noValue="no link was measured"),
        stat("Largest round trip", "Of all links; the smallest of the last 16 messages of each.", [target(f"max({of('weir_link_rtt_seconds')} > 0)",
                                                                                                          "round trip")], 5, unit="s",
             noValue="no link was measured"),
        stat("Bytes on the links", "Payload of timed transfers, all links together.", [target(f"8 * sum({rate('weir_link_bytes_total')})", "rate")],
             4, unit="bps",
             noValue="no link was measured"),
        timeline("Bandwidth of links against usual", "The ten pairs of nodes with the least of their usual bandwidth over this time, in the worse "
                                                     "direction. 100 %: as usual or better. "
                 "The operator knows what is usual after five minutes.",
                 [target(f"clamp_max({RATIO}, 1) and on (from_node, to_node) {worst}", "{{from_node}} to {{to_node}}")],
                 height=9, unit="percentunit", decimals=0, color={"mode": "thresholds"}, thresholds=colours, min=0, max=1,
                 noValue="No link has a usual bandwidth yet: the operator knows it after five minutes."),
        lines("The ten slowest links", "Those that are slowest at the end of this time. Bits per second while bytes were on their way, so that an "
                                       "idle pipeline does not lower it. Free links scatter: many of their messages arrive in one piece, which "
                                       "tells nothing.",
              [target(f"{bandwidth()} and on ({LINK}) {slowest}", "{{link}} {{dir}}, replica {{replica}}")], 12, 9, "bps", log=True,
              noValue="no transfer was timed"),
        table("The ten slowest links now", "fwd: activations, bwd: gradients, sync: between replicas, which tell no message times. Message: time of "
                                           "one, 99 % are faster. Bits: of a number on the wire; below 16 a codec rounds it.",
              [("bandwidth", slowest, {"unit": "bps"}),
               ("message p99", f"(histogram_quantile(0.99, {by_link('weir_link_transfer_seconds_bucket', 'le, ')}) > 0) and on ({LINK}) {slowest}",
                {"unit": "s"}),
               ("round trip", f"(max by ({LINK}) ({of('weir_link_rtt_seconds')}) > 0) and on ({LINK}) {slowest}", {"unit": "s"}),
               ("connections", f"max by ({LINK}) ({of('weir_link_connections')}) and on ({LINK}) {slowest}", {"decimals": 0}),
               ("bits", f"max by ({LINK}) ({of('weir_link_codec_bits')}) and on ({LINK}) {slowest}", {"decimals": 2})],
              12, 9, keys=[("link", "link"), ("dir", "direction"), ("replica", "replica"), ("from_node", "from"), ("to_node", "to")],
              sort="bandwidth", noValue="–"),
    )


# --- where the time goes ----------------------------------------------------------------------------------------------

OPS = {"F": ("forward", "green"), "B": ("backward", "blue"), "W": ("gradients of weights", "purple"), "O": ("optimizer", "dark-green")}
PARTS = {"forward": ("forward", "green"), "backward": ("backward", "blue"), "weights": ("gradients of weights", "purple"),
         "optimizer": ("optimizer", "dark-green"), "clip": ("norm of the gradients", "super-light-green"), "data": ("loads data", "light-blue"),
         "codec": ("encodes and decodes tensors", "super-light-blue"),
         "forward_late": ("waits: activations are late", "yellow"), "forward_link": ("waits: link of activations", "semi-dark-yellow"),
         "gradient_late": ("waits: gradients are late", "orange"), "gradient_link": ("waits: link of gradients", "semi-dark-orange"),
         "full_link": ("waits: own result on the link", "light-red"), "full_peer": ("waits for a slot of the peer", "red"),
         "sum": ("waits for replicas: sums", "dark-red"),
         "average": ("waits for replicas: averages", "dark-red"), "note": ("waits for later stages", "light-orange"),
         "verdict": ("waits for all stages", "light-yellow"), "save": ("copies for a save", "dark-purple"),
         "switch": ("changes the plan", "dark-blue"), "validation": ("validates", "dark-yellow"), "other": ("other", "#808080")}
LINES = {"Compute": ("compute of the slowest stage", "green"), "Data": ("loading its data", "light-blue"),
         "FillAndDrain": ("filling and draining the pipeline", "blue"), "UsualLinks": ("links at their usual rates", "yellow"),
         "SlowLinks": ("links slower than usual", "red"), "Order": ("what this order does not hide", "orange"),
         "Update": ("sums, clipping and optimizer", "dark-green"), "Interruptions": ("saves, validation, switches", "purple"),
         "NotExplained": ("not explained", "#808080")}
A_STEP = f"(avg({rate('weir_iteration_seconds_count')}) > 0)"


def time_row():
    parts = [target(f"(avg by (part) ({rate('weir_step_part_seconds_total', stage='$stage')}) > 0) / on () group_left () {A_STEP}", "{{part}}")]
    names = [override(name, displayName=text, color={"mode": "fixed", "fixedColor": colour}) for name, (text, colour) in PARTS.items()]
    op = {letter: f"sum by (stage) ({rate('weir_stage_op_seconds_sum', op=letter)}) / (sum by (stage) ({rate('weir_stage_op_seconds_count', op=letter)}) > 0)"
          for letter in OPS}
    compute = f"sum by (stage) ({rate('weir_stage_op_seconds_sum')}) / count by (stage) ({of('weir_inflight_peak')})"
    step = [override(name, displayName=text, color={"mode": "fixed", "fixedColor": colour}) for name, (text, colour) in LINES.items()]
    return (
        lines("Where a step goes", "Lines that add up to a step of the replica that waits least for others: what any order of the tasks needs, what slow "
                                   "links add, what this order does not hide. The last one may be negative.",
              [target(f"max by (line) ({of('weir_job_step_line_seconds')})", "{{line}}")], 24, 9, "s", stacked=True, legend="table", overrides=step,
              noValue="Not known in the first steps, and with sync.mode Partial."),
        lines("Where a step of stage $stage goes", "What a worker of the chosen stage does from the end of a step to the end of the next one, mean over "
                                                   "the replicas; the parts add up to that time. Late activations or gradients are the bubble "
              "of the schedule or a slower stage; link: the wait goes on while the message is on its way.",
              parts, 14, 11, "s", stacked=True, legend="table", min=0, overrides=names, noValue="no step in this time"),
        bars("Stages that compute most", "Part of its time that a stage computes, mean over the replicas: the largest is the bottleneck, the others "
                                         "wait for it. At most ten.",
             [target(f"topk(10, {compute})", "stage {{stage}}", instant=True)], 10, 11, "percentunit", decimals=1, min=0, max=1,
             noValue="no step now"),
        table("Stages", "Time of one micro-batch, by operation: forward, backward (of split backwards the gradient of the input), gradients of "
                        "weights, optimizer (a step). "
              "Cap: most micro-batches that may be in flight; peak: most that were.",
              [("computes", compute, {"unit": "percentunit", "decimals": 1}),
               *[(OPS[letter][0], op[letter], {"unit": "s"}) for letter in OPS],
               ("cap", f"max by (stage) ({of('weir_plan_cap')} * on (worker) group_left (stage) (0 * {of('weir_inflight_peak')} + 1))",
                {"unit": "none"}),
               ("peak", f"max by (stage) ({of('weir_inflight_peak')})", {"unit": "none"})],
              24, 8, keys=[("stage", "stage")], sort="computes", descending=True, noValue="–"),
    )


# --- does it learn ----------------------------------------------------------------------------------------------------

def learning_row():
    return (
        lines("Loss", "Of the last step, and of the last validation where the job validates (`--validation-interval`).",
              [target(f"max({of('weir_loss')})", "training"), target(f"avg({of('weir_validation_loss')})", "validation")], 12, 9, "none", decimals=2,
              noValue="no step in this time"),
        lines("Tokens", "Tokens of completed steps, all replicas together.", [target(f"sum({rate('weir_tokens_total')})", "tokens per second")], 8, 9,
              "none", min=0,
              noValue="no step in this time"),
        stat("Skipped steps", "Steps in this time that changed no parameter, because loss or gradient was no finite number. Many in a row end the "
                              "job as diverged.",
             [target(f"max({increase('weir_skipped_steps_total')})", "skipped", instant=True)], 4, 9, decimals=0, size=48,
             thresholds=steps(("green", None), ("red", 1)),
             noValue="no step in this time"),
    )


# --- checkpoints and recovery -----------------------------------------------------------------------------------------

def recovery_row():
    none = "This job saves no checkpoint."
    copies = "The workers of this job keep no copies."
    saved = f"and on () (sum({increase('weir_checkpoint_seconds_count')}) > 0)"
    return (
        stat("Steps since a checkpoint", "Done again if the state of a stage is lost with all its workers.",
             [target(f"max({of('weir_step')}) - max({of('weir_checkpoint_last_step')})", "steps")], 4, noValue=none),
        stat("Time of a save", "From the copy of the parameters until a worker's files lie on disk; training goes on meanwhile. Saves in this time.",
             [target(f"histogram_quantile({q}, sum by (le) ({increase('weir_checkpoint_seconds_bucket')})) {saved}", name, instant=True)
              for q, name in ((0.5, "median"), (0.99, "99 % are faster"))], 8, unit="s", noValue="no save in this time"),
        stat("Failed saves", "Saves in this time that came to nothing. Training goes on; the log of worker 0 says why.",
             [target(f"max({increase('weir_checkpoint_failures_total')})", "failed", instant=True)], 4, decimals=0, thresholds=steps(("green", None),
                                                                                                                                     ("red", 1)),
             noValue="no worker told in this time"),
        stat("Restarts", "In this time, of one worker or all.", [target(f"sum(max by (reason) ({increase('weir_job_restarts_total')}))", "restarts",
                                                                        instant=True)], 4, decimals=0,
             thresholds=steps(("green", None), ("orange", 1)), noValue="the operator does not tell"),
        stat("Steps done again", "Steps that were complete and had to be done again after restarts in this time. 0 while another replica holds what "
                                 "a lost worker held.",
             [target(f"max({increase('weir_job_lost_steps_total')})", "steps", instant=True)], 4, decimals=0, noValue="the operator does not tell"),
        events("Restarts by cause", "Only causes that happened.", of("weir_job_restarts_total"), "reason", "reason", 12, 7,
               noValue="Nothing restarted in this time."),
        lines("Standing still for copies", "Part of their time that workers copy their state into memory, from where training goes on after a loss: the "
                                           "most of any worker.", [target(f"max({rate('weir_recovery_copy_wait_seconds_total')})", "most")], 6, 7,
              "percentunit", min=0, noValue=copies),
        lines("Memory of copies", "Of a worker's own state and of a neighbor's: the most of any worker.",
              [target(f"max({of('weir_recovery_host_bytes')})", "most")], 6, 7, "bytes", min=0, noValue=copies),
    )


# --- replicas ---------------------------------------------------------------------------------------------------------

def replica_row():
    one = "This job has one replica."
    partial = "Only with sync.mode Partial."
    # No division where the first stage has just moved: the new counter has not seen the whole window.
    whole = f"and on (worker) rate({of('weir_replica_step_seconds_total', '[$__rate_interval] offset $__rate_interval')})"
    own = f"{rate('weir_replica_step_seconds_total')} / on (worker) group_left () ({rate('weir_iteration_seconds_count')} > 0) {whole}"
    group = f"sum({rate('weir_sync_group_size_sum')}) / (sum({rate('weir_sync_group_size_count')}) > 0)"
    return (
        lines("Own time of a step: the ten slowest replicas", "Without waiting for others. A gap: the first stage of a replica has just moved.",
              [target(f"topk(10, max by (replica) ({own})) {REPLICATED}", "replica {{replica}}")], 12, 8, "s", noValue=one),
        lines("Waiting for other replicas", "Part of their time that workers wait for sums or averages: mean and the most of any worker.",
              [target(f"avg(sum by (worker) ({rate('weir_sync_wait_seconds_total')})) {REPLICATED}", "mean"),
               target(f"max(sum by (worker) ({rate('weir_sync_wait_seconds_total')})) {REPLICATED}", "most")], 12, 8, "percentunit", min=0,
              noValue=one),
        lines("Rounds per second", "Steps done together: rounds of all replicas: exact: with sums over all; partial: an average over some; single: "
                                   "alone.",
              [target(f"(sum by (kind) ({rate('weir_sync_rounds_total')}) > 0) {REPLICATED}", "{{kind}}")], 8, 8, "none", min=0, noValue=one),
        lines("Replicas in an average", "Mean size of the groups.", [target(f"{group} {REPLICATED}", "replicas")], 8, 8, "none", min=0,
              noValue=partial),
        lines("Ahead of the slowest replica", "Steps, at the last average: the most and the mean of all replicas.",
              [target(f"max({of('weir_sync_staleness')}) {REPLICATED}", "most"), target(f"avg({of('weir_sync_staleness')}) {REPLICATED}", "mean")], 8,
              8, "none", min=0, noValue=one),
        bars("Micro-batches of a step", "Shares by speed; the ten smallest.",
             [target(f"bottomk(10, max by (replica) ({of('weir_job_micro_batch_share')})) {REPLICATED}", "replica {{replica}}", instant=True)],
             12, 8, "none", min=0, noValue=one),
        lines("Bandwidth to other replicas: the ten slowest", "While all took part in the sums; with sync.mode Partial that of a replica's node.",
              [target(f"8 * bottomk(10, max by (replica) ({of('weir_sync_bus_bandwidth')}))", "replica {{replica}}")], 12, 8, "bps", min=0,
              noValue="No sum between replicas was timed."),
    )


# --- workers and devices ----------------------------------------------------------------------------------------------

def worker_row():
    info = of("weir_worker_info")
    mine = f"* on (instance, job) group_left (worker) {info}"
    return (
        table("Workers", "All pods of the job. emulated: compute is slept, for tests. Threads: that compute on the device cpu.", [("is", info, {})],
              24, 9,
              keys=[("worker", "worker"), ("stage", "stage"), ("replica", "replica"), ("worker_group", "group"), ("node_name", "node"),
                    ("device", "device"), ("transport", "transport"),
                    ("threads", "threads"), ("emulated", "emulated"), ("version", "version")],
              hidden=("__name__", "pipeline_namespace", "pipeline_job", "instance", "job", "namespace", "pod", "container", "endpoint", "node",
                      "service", "Value"), sort="stage",
              noValue="no worker tells of itself"),
        lines("Free memory: the ten with least", "Of the device; on a CPU, of the container.",
              [target(f"bottomk(10, min by (worker) ({of('weir_gpu_free_bytes')}))", "{{worker}}")], 12, 8, "bytes", min=0,
              noValue="no worker told in this time"),
        lines("Activations: the ten with most", "Most bytes kept from a forward to the end of its backward since the stage was built.",
              [target(f"topk(10, max by (worker) ({of('weir_activation_bytes_peak')}))", "{{worker}}")], 12, 8, "bytes", min=0,
              noValue="no worker told in this time"),
        lines("Processors of the ten busiest workers", "Seconds of CPU a second.",
              [target(f"topk(10, max by (worker) (rate(process_cpu_seconds_total[$__rate_interval]) {mine}))", "{{worker}}")],
              8, 8, "none", min=0, noValue="no worker told in this time"),
        lines("Memory of the ten largest workers", "Resident memory of the program.",
              [target(f"topk(10, max by (worker) (process_resident_memory_bytes {mine}))", "{{worker}}")], 8, 8, "bytes", min=0,
              noValue="no worker told in this time"),
        lines("Time in NCCL", "Of all senders: on the network, waiting for the peer, waiting for the own GPU.",
              [target(f"sum by (state) ({rate('weir_link_nccl_seconds_total', state='~network|peer|gpu')})", "{{state}}")], 8, 8, "s", stacked=True,
              min=0,
              noValue="Only with network.transport NCCL."),
    )


def degraded(after=""):
    return f"max by (reason) ({of('weir_job_condition_reason', after, condition='Degraded')}) and on () ({condition('Degraded', after)} == 1)"


def board():
    before = "[10m] offset $__interval"   # a scrape may fail
    plan = (f"{REVISION} * on ({KEY}) group_left (k) {K} * on ({KEY}) group_left (trigger) max by ({KEY}, trigger) ({of('weir_job_plan_trigger')}) "
            f"unless on (revision) count_values(\"revision\", max(last_over_time({of('weir_job_plan_applied_revision', before)})))")
    restarted = f"max by (reason) ({of('weir_job_restarts_total')}) - max by (reason) (last_over_time({of('weir_job_restarts_total', before)})) > 0"
    made = Board(
        "weir-pipelinejob", "Weir / PipelineJob", "One PipelineJob: is it healthy, what did the operator do, which link is slow, where does the "
                                                  "time go.", "10s", "now-30m", ["weir", "training"],
        [variable("namespace", "Namespace", "label_values(weir_job_condition, pipeline_namespace)"),
         variable("pipelinejob", "Job", 'label_values(weir_job_condition{pipeline_namespace="$namespace"}, pipeline_job)'),
         variable("stage", "Stage", f"label_values({of('weir_inflight_peak')}, stage)", sort=3),
         variable("replicas", "Replicas", f"query_result({REPLICAS})", regex=r"/ (\d+) \d+/", hidden=True)],
        [annotation("Plans", "blue", plan, "Plan {{revision}} is in force: k = {{k}} ({{trigger}})"),
         annotation("Slower than planned", "orange", f"{degraded()} unless on (reason) ({degraded(' offset $__interval')})",
                    "The job is slower than planned: {{reason}}"),
         annotation("Restarts", "red", restarted, "The job restarted: {{reason}}")],
        [("All jobs", "/d/weir-fleet", "Jobs, worst first"), ("Operator", "/d/weir-operator", "What the operator does")])
    made.row("Is it healthy, and how far from the bound?", *health(), collapsed=False)
    made.row("What did the operator do, and what did it bring?", *operator_row())
    made.row("Which link is slow?", *link_row())
    made.row("Where does the time of stage $stage go?", *time_row())
    made.row("Does it learn?", *learning_row())
    made.row("Checkpoints and recovery", *recovery_row())
    made.row("Replicas: $replicas", *replica_row())
    made.row("Workers, memory and devices", *worker_row())
    return made
