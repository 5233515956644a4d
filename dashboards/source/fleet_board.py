# SPDX-License-Identifier: Apache-2.0
"""All PipelineJobs, worst first, each with a link to its board."""
from blocks import Board, events, lines, override, stat, steps, table, target, timeline, variable, words

IN = 'pipeline_namespace=~"$namespace"'
KEY = "pipeline_namespace, pipeline_job"
JOB_BOARD = "/d/weir-pipelinejob?var-datasource=${datasource}&var-namespace=${__data.fields.namespace}&var-pipelinejob=${__data.fields.job}&${__url_time_range}"


def of(metric, after="", **labels):
    """The metric of the chosen namespaces, with what follows the selector."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{IN}{more}}}{after}"


def rate(metric):
    return f"rate({of(metric, '[$__rate_interval]')})"


def increase(metric, window="$__rate_interval"):
    return f"increase({of(metric, f'[{window}]')})"


def condition(kind):
    """1 or 0 for each job."""
    return f"max by ({KEY}) ({of('weir_job_condition', condition=kind, status='True')})"


def count(jobs):
    return f"count({jobs}) or vector(0)"


READY, DEGRADED, FAILED, COMPLETE, SUSPENDED = (condition(kind) for kind in ("Ready", "Degraded", "Failed", "Complete", "Suspended"))
ENDED = f"({FAILED} == 1 or {COMPLETE} == 1)"
LIVE = f"({READY} >= 0 unless on ({KEY}) {ENDED})"            # 1 trains, 0 does not
WAITS = f"({LIVE} == 0 unless on ({KEY}) {SUSPENDED} == 1)"
TRAINS = f"({LIVE} == 1)"
# 3 failed, 2 does not train, 1 slower than planned, 0 well, -1 suspended or complete
TROUBLE = (f"({FAILED} == 1) * 3 or on ({KEY}) ({COMPLETE} == 1) * -1 or on ({KEY}) ({SUSPENDED} == 1) * -1 "
           f"or on ({KEY}) (({READY} == 0) + 2) or on ({KEY}) {DEGRADED}")


BOUND = f"max by ({KEY}) ({of('weir_job_plan_bound_percent', step='measured')})"


def why(kind, label):
    """The reason of a condition in a label of this name."""
    return f'max by ({KEY}, {label}) (label_replace({of("weir_job_condition_reason", condition=kind)}, "{label}", "$1", "reason", "(.*)"))'


def summary():
    red = steps(("green", None), ("red", 1))
    return (
        stat("Jobs", "All that exist, ended ones too.", [target(count(READY), "jobs")], 4),
        stat("Train", "Jobs whose steps advance.", [target(count(TRAINS), "jobs")], 4),
        stat("Do not train", "Not ended, not suspended, and not Ready: the table says why.", [target(count(WAITS), "jobs")], 4,
             thresholds=steps(("green", None), ("orange", 1))),
        stat("Slower than planned", "Jobs that are Degraded: something costs time now.", [target(count(f"{DEGRADED} == 1 unless on ({KEY}) {ENDED}"),
                                                                                                 "jobs")], 4,
             thresholds=steps(("green", None), ("orange", 1))),
        stat("Failed", "Jobs that have ended badly.", [target(count(f"{FAILED} == 1"), "jobs")], 4, thresholds=red),
        stat("Alerts", "Firing alerts of Weir, where its rules are loaded.",
             [target('count(ALERTS{alertname=~"Weir.+",alertstate="firing"}) or vector(0)', "alerts")], 4, thresholds=red),
        table("Jobs, worst first", "A job's name leads to its board. Worst link: the least of its usual bandwidth that a pair of its nodes has now; "
                                   "below half: part of this time in which that was less than half. "
              "Above the bound: how much longer a step takes than no order of tasks could beat.",
              [("health", TROUBLE, {"mappings": [words(_3=("failed", "red"), _2=("does not train", "dark-orange"), _1=("slower than planned",
                                                                                                                       "dark-yellow"),
                                                       _0=("well", "green"), **{"_-1": ("ended or suspended", "text")})],
                                    "custom.cellOptions": {"type": "color-text"}, "custom.width": 170}),
               ("value of state", why("Ready", "state"), {}),
               ("value of speed", why("Degraded", "speed"), {}),
               ("done", f"max by ({KEY}) ({of('weir_step')}) / max by ({KEY}) ({of('weir_job_target_steps')})",
                {"unit": "percentunit", "decimals": 0}),
               ("samples/s", f"sum by ({KEY}) ({rate('weir_samples_total')})", {"unit": "none", "decimals": 1}),
               ("above the bound", BOUND, {"unit": "percent", "decimals": 0}),
               ("worst link", f"clamp_max(min by ({KEY}) ({of('weir_job_link_bandwidth_ratio')}), 1)", {"unit": "percentunit", "decimals": 0}),
               ("below half", f"avg_over_time((min by ({KEY}) ({of('weir_job_link_bandwidth_ratio')}) < bool 0.5)[$__range:1m])",
                {"unit": "percentunit", "decimals": 0}),
               ("plans", f"max by ({KEY}) ({of('weir_job_plan_revision')})", {"unit": "none"}),
               ("restarts", f"sum by ({KEY}) (max by ({KEY}, reason) ({increase('weir_job_restarts_total', '$__range')}))",
                {"unit": "none", "decimals": 0})],
              24, 10, keys=[("pipeline_namespace", "namespace"), ("pipeline_job", "job")], more=[("state", "state"), ("speed", "speed")],
              hidden=("Value #B", "Value #C"), sort="health", descending=True, noValue="–",
              overrides=[override("job", links=[{"title": "Board of this job", "url": JOB_BOARD, "targetBlank": False}])]),
    )


def links():
    ratio = f"min by ({KEY}, from_node, to_node) ({of('weir_job_link_bandwidth_ratio')})"
    worst = f"bottomk(10, min by ({KEY}, from_node, to_node) (avg_over_time({of('weir_job_link_bandwidth_ratio')}[$__range] @ end())))"
    return (
        timeline("Ten slowest links of all jobs, against usual", "100 %: as usual or better.", [target(
            f"clamp_max({ratio}, 1) and on ({KEY}, from_node, to_node) {worst}", "{{pipeline_job}}: {{from_node}} to {{to_node}}")],
                 height=9, unit="percentunit", decimals=0, color={"mode": "thresholds"}, min=0, max=1,
                 thresholds=steps(("dark-red", None), ("red", 0.25), ("orange", 0.5), ("yellow", 0.7), ("green", 0.85)),
                 noValue="No link has a usual bandwidth yet: the operator knows it after five minutes."),
        lines("Farthest above the bound: ten jobs", "How much longer a step takes than no order of tasks on its devices and links could beat.",
              [target(
            f"topk(10, {BOUND})", "{{pipeline_namespace}}/{{pipeline_job}}")], 24, 8, "percent", min=0,
              noValue="not known of any job yet"),
    )


def over_time():
    return (
        lines("Jobs by state", "Ended jobs are not counted.", [target(count(TRAINS), "train"), target(count(WAITS), "do not train"), target(
            count(f"{SUSPENDED} == 1 unless on ({KEY}) {ENDED}"), "suspended")], 12, 8, "none", stacked=True, min=0, decimals=0),
        events("Changes of plans", "Of all jobs, by tier and outcome.", of("weir_job_plan_changes_total"), "tier, outcome",
              noValue="No plan was changed in this time."),
        lines("Throughput: ten largest jobs", "Samples of completed steps.", [target(f"topk(10, sum by ({KEY}) ({rate('weir_samples_total')}))",
                                                                                     "{{pipeline_namespace}}/{{pipeline_job}}")],
              12, 8, "none", min=0, noValue="no job trained in this time"),
        events("Restarts by cause", "Of all jobs; only causes that happened.", of("weir_job_restarts_total"), "reason", f"{KEY}, reason",
              noValue="Nothing restarted in this time."),
    )


def board():
    made = Board("weir-fleet", "Weir / All jobs", "All PipelineJobs, worst first: which need attention, and why.", "30s", "now-1h",
                 ["weir", "training"],
                 [variable("namespace", "Namespace", "label_values(weir_job_condition, pipeline_namespace)", everything=True)],
                 links=[("Operator", "/d/weir-operator", "What the operator does")])
    made.row("Which jobs need attention?", *summary(), collapsed=False)
    made.row("Which links are slow?", *links())
    made.row("What happened?", *over_time())
    return made
