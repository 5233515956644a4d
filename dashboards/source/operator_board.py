# SPDX-License-Identifier: Apache-2.0
"""The operator itself: does it lead and keep up, and what do its requests cost."""
from blocks import Board, annotation, events, lines, stat, steps, table, target

LEADS = 'leader_election_master_status{name="weir-operator"}'   # the chart writes the lease of its release here
OURS = f"and on (instance, job) {LEADS}"                         # other controllers export metrics of the same names


def rate(metric, labels=""):
    return f"(rate({metric}{labels}[$__rate_interval]) {OURS})"


def grown(metric, labels=""):
    """How much a counter has grown in the time of the board."""
    return f"(increase({metric}{labels}[$__range]) {OURS})"


def ours(metric):
    return f"({metric} {OURS})"


def quantiles(metric, labels=""):
    return [target(f"histogram_quantile({q}, sum by (le) ({rate(metric + '_bucket', labels)}))", name) for q, name in ((0.5, "median"),
                                                                                                                       (0.99, "99 % are faster"))]


QUEUE = '{name="pipelinejob"}'
PASSES = '{controller="pipelinejob"}'
ONE = steps(("red", None), ("green", 1), ("red", 2))
NONE = steps(("green", None), ("red", 1))


def health():
    return (
        stat("Leaders", "Must be one: without a leader running jobs train on, but nothing is started, repaired or retuned.",
             [target(f"sum({LEADS})", "leaders")], 4, thresholds=ONE,
             noValue="no operator tells"),
        stat("Operators", "Programs of this release that run; one leads, the others wait.", [target(f"count({LEADS})", "operators")], 4,
             noValue="no operator tells"),
        stat("Jobs in the queue", "That wait for a pass now.", [target(f"max({ours('workqueue_depth' + QUEUE)})", "jobs")], 4,
             thresholds=steps(("green", None), ("orange", 20)), noValue="no operator tells"),
        stat("Failed passes", "In this time. A pass that fails is done again.",
             [target(f"sum({grown('controller_runtime_reconcile_errors_total', PASSES)})", "failed", instant=True)], 4, decimals=0,
             thresholds=steps(("green", None), ("orange", 1)), noValue="no operator tells"),
        stat("Cache drift", "Cached objects that differed from the API server in this time. Must be 0; please report it.",
             [target(f"sum({grown('weir_reflector_drift_total')}) or vector(0)", "objects", instant=True)],
             4, decimals=0, thresholds=NONE),
        stat("Certificate ends", "Of the control API that workers call; it is renewed in time.",
             [target(f"min({ours('weir_control_certificate_expiration_timestamp_seconds')}) * 1000", "ends")], 4,
             unit="dateTimeFromNow", noValue="no certificate is served"),
        lines("Time of a pass", "From a job's turn until its status is written.", quantiles("controller_runtime_reconcile_time_seconds", PASSES), 12,
              8, "s", min=0, noValue="no pass in this time"),
        lines("Time in the queue", "How long a job waits for its pass after something happened.", quantiles("workqueue_queue_duration_seconds",
                                                                                                            QUEUE), 12, 8, "s", min=0,
              noValue="no pass in this time"),
        lines("Passes", "By result: error and requeue are done again soon.",
              [target(f"sum by (result) ({rate('controller_runtime_reconcile_total', PASSES)})", "{{result}}")], 8, 8, "ops", min=0,
              noValue="no operator tells"),
        lines("Queue", "Jobs that wait for a pass.", [target(f"max({ours('workqueue_depth' + QUEUE)})", "jobs")], 8, 8, "none", min=0, decimals=0,
              noValue="no operator tells"),
        lines("Oldest pass under way", "Grows without end when a pass hangs.",
              [target(f"max({ours('workqueue_longest_running_processor_seconds' + QUEUE)})", "age")], 8, 8, "s", min=0,
              noValue="no operator tells"),
    )


def plans():
    seconds = {"unit": "s"}

    def costs(title, text, metric, label, name):
        total = f"(sum by ({label}) ({grown(metric + '_count')}) > 0)"
        return table(title, text, [("number", total, {"unit": "none", "decimals": 0}),
                                   ("mean", f"sum by ({label}) ({grown(metric + '_sum')}) / {total}", seconds),
                                   ("99 % are faster",
                                    f"histogram_quantile(0.99, sum by (le, {label}) ({grown(metric + '_bucket')})) and on ({label}) {total}",
                                    seconds)],
                     12, 8, keys=[(label, name)], sort="number", descending=True, noValue="No plan was made in this time.")
    return (
        costs("Decisions about plans", "evaluate: a look whether another plan would be better; the others are what led to a new plan.",
              "weir_planner_seconds", "kind", "kind"),
        costs("Until a plan is in force", "From a new plan to the report that the workers run it, by what led to it.", "weir_plan_apply_seconds",
              "tier", "trigger"),
        events("Changes of plans", "Of all jobs, by tier and outcome.", "weir_job_plan_changes_total", "tier, outcome", width=24,
               noValue="No plan was changed in this time."),
    )


def prometheus():
    return (
        lines("Time of a query", "Queries for link bandwidths; one answers for all jobs.", quantiles("weir_metrics_query_seconds"), 12, 8, "s", min=0,
              noValue="no query in this time"),
        events("Failed queries", "Without answers jobs train on with their plans, but are not retuned.", "weir_metrics_query_errors_total", "reason",
               noValue="No query has failed in this time."),
    )


def api_server():
    return (
        lines("Requests to the API server", "By method and code.", [target(f"sum by (method, code) ({rate('rest_client_requests_total')})",
                                                                           "{{method}} {{code}}")], 12, 8, "reqps", min=0,
              noValue="no request in this time"),
        lines("Time of a request", "Watches are not counted.", quantiles("rest_client_request_duration_seconds"), 12, 8, "s", min=0,
              noValue="no request in this time"),
        events("Lists after the first one", "A watch that had expired was begun anew; some an hour are usual.", "weir_reflector_relists_total",
               "resource", width=24, height=6,
               noValue="No watch has expired in this time."),
    )


def control():
    return (
        lines("Answers to workers", "Of the control API, by endpoint and code.",
              [target(f"sum by (endpoint, code) ({rate('weir_control_requests_total')})", "{{endpoint}} {{code}}")], 12, 8, "reqps", min=0,
              noValue="no worker has asked yet"),
        lines("Open polls", "Coordinators that wait for a plan: one of each job that trains.",
              [target(f"sum({ours('weir_control_polls')})", "polls")], 6, 8, "none", min=0, noValue="no operator tells"),
        lines("Reviews of tokens", "Rejected: a pod that is not a worker of the job asked.",
              [target(f"sum by (result) ({rate('weir_token_reviews_total')})", "{{result}}")], 6, 8, "ops", min=0,
              noValue="no worker has asked yet"),
    )


def program():
    return (
        lines("Processors", "Seconds of CPU a second, by program.", [target(rate("process_cpu_seconds_total"), "{{instance}}")], 8, 8, "none", min=0,
              noValue="no operator tells"),
        lines("Memory", "Resident, by program.", [target(ours("process_resident_memory_bytes"), "{{instance}}")], 8, 8, "bytes", min=0,
              noValue="no operator tells"),
        table("Versions", "Of the operators that run.", [("is", f"weir_operator_info {OURS}", {})], 8, 8, keys=[("instance", "instance"),
                                                                                                                ("version", "version"),
                                                                                                                ("revision", "revision")],
              hidden=("__name__", "job", "namespace", "pod", "container", "endpoint", "node", "service", "Value"), noValue="no operator tells"),
    )


def board():
    led = f"max by (instance) ({LEADS}) == 1"
    before = f"max by (instance) (last_over_time({LEADS}[10m] offset $__interval)) == 1"
    made = Board("weir-operator", "Weir / Operator", "The operator itself: does it lead and keep up, what do plans cost, and its requests.", "30s",
                 "now-1h", ["weir", "operator"], [],
                 [annotation("New leader", "orange", f"{led} unless {before}", "{{instance}} leads from here on")],
                 [("All jobs", "/d/weir-fleet", "Jobs, worst first")])
    made.row("Does it lead and keep up?", *health(), collapsed=False)
    made.row("What do plans cost?", *plans())
    made.row("Does Prometheus answer?", *prometheus())
    made.row("Does the API server answer?", *api_server())
    made.row("Do the workers reach it?", *control())
    made.row("What does the program need?", *program())
    return made
