#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Dashboards and rules: the classic schema, queries that promtool parses, and only metrics that the programs export.

Needs Debian's python3-yaml; the tests that need promtool (tests/cluster/build.sh) skip themselves without it.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import boards
import yaml
from boards import ROOT, concrete, panels

DASHBOARDS = boards.PATHS
RULES = sorted((ROOT / "dashboards" / "rules").glob("*.yaml"))

# Metrics that only a running operator counts, with their labels. All others are in the recorded pages.
METRICS = {
    "weir_operator_info": {"version", "revision"},
    "weir_metrics_query_seconds": set(), "weir_metrics_query_errors_total": {"reason"},
    "weir_control_requests_total": {"endpoint", "code"}, "weir_control_polls": set(), "weir_control_certificate_errors_total": set(),
    "weir_control_certificate_expiration_timestamp_seconds": set(),
    "weir_token_reviews_total": {"result"},
    "weir_reflector_relists_total": {"resource", "reason"}, "weir_reflector_drift_total": {"resource"},
    "leader_election_master_status": {"name"},
    "process_cpu_seconds_total": set(), "process_resident_memory_bytes": set(),
}
for page in sorted((ROOT / "tests" / "data" / "recorded").glob("metrics-*.txt")):
    for line in page.read_text().splitlines():
        if line.startswith("# TYPE "):
            labels = METRICS.setdefault(line.split()[2], set())
        elif line and not line.startswith("#"):
            labels.update(set(re.findall(r'(\w+)="', line)) - {"le"})
NAME = r"(?:weir|leader_election|controller_runtime|workqueue|rest_client|process)_[a-z_]+"
HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def find_promtool():
    sys.path.insert(0, str(ROOT / "tests" / "cluster"))
    import lab
    cached = lab.bin_dir() / "promtool"
    return str(cached) if cached.exists() else shutil.which("promtool")


PROMTOOL = find_promtool()


def queries():
    """(where, query) of every panel, annotation and rule, with Grafana's variables replaced."""
    for path in DASHBOARDS:
        dashboard = boards.load(path)
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", concrete(target["expr"])
        for annotation in dashboard["annotations"]["list"]:
            yield f"{path.name}: annotation {annotation['name']}", concrete(annotation["expr"])
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield f"{path.name}: {rule.get('alert') or rule['record']}", rule["expr"]


class Queries(unittest.TestCase):
    def test_metric_names_are_exported_ones(self):
        for where, query in queries():
            bare = re.sub(r'"[^"]*"', '""', query)
            for name in re.findall(rf"\b{NAME}", bare):
                self.assertIn(HISTOGRAM.sub("", name) if name not in METRICS else name, METRICS, where)

    def test_labels_in_selectors_are_carried_by_their_metric(self):
        for where, query in queries():
            for name, selector in re.findall(rf"\b({NAME})\{{([^}}]*)\}}", query):
                labels = {part.split("=")[0].strip(" !~") for part in re.sub(r'"[^"]*"', '""', selector).split(",") if part}
                self.assertLessEqual(labels, METRICS[name if name in METRICS else HISTOGRAM.sub("", name)], where)

    @unittest.skipUnless(PROMTOOL, "no promtool: tests/cluster/build.sh builds it")
    def test_promtool_parses_every_query(self):
        rules = [{"record": f"check:query_{i}", "expr": query} for i, (_, query) in enumerate(queries())]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}, file)
            file.flush()
            done = subprocess.run([PROMTOOL, "check", "rules", "--lint=none", file.name], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)


class Dashboard(unittest.TestCase):
    def test_classic_schema(self):
        self.assertTrue(DASHBOARDS)
        for path in DASHBOARDS:
            dashboard = boards.load(path)
            self.assertGreaterEqual(dashboard["schemaVersion"], 39)
            self.assertRegex(dashboard["uid"], r"^[a-z0-9-]{1,40}$")
            self.assertNotIn("id", dashboard)
            self.assertTrue(dashboard["title"])

    def test_panels_have_ids_of_their_own_and_do_not_overlap(self):
        for path in DASHBOARDS:
            dashboard = boards.load(path)
            ids = [panel["id"] for panel in dashboard["panels"]] + [panel["id"] for row in dashboard["panels"] for panel in row.get("panels", [])]
            self.assertEqual(len(ids), len(set(ids)), path.name)
            for open_panels in (dashboard["panels"], *(row["panels"] for row in dashboard["panels"] if row.get("panels"))):
                taken = {}
                for panel in open_panels:
                    where, position = f"{path.name}: {panel['title']}", panel["gridPos"]
                    self.assertLessEqual(position["x"] + position["w"], 24, where)
                    for x in range(position["x"], position["x"] + position["w"]):
                        for y in range(position["y"], position["y"] + position["h"]):
                            self.assertNotIn((x, y), taken, f"{where} lies on {taken.get((x, y))}")
                            taken[x, y] = panel["title"]

    def test_shows_what_the_issue_of_a_slow_link_needs(self):
        text = " ".join(query for _, query in queries())
        for name in ("weir_iteration_seconds", "weir_samples_total", "weir_plan_k", "weir_job_plan_revision", "weir_link_bytes_total",
                     "weir_link_busy_seconds_total", "weir_step_part_seconds_total", "weir_loss", "weir_replica_step_seconds_total",
                     "weir_sync_wait_seconds_total", "weir_sync_group_size_sum", "weir_sync_bus_bandwidth", "weir_sync_staleness"):
            self.assertIn(name, text)

    def test_variables_are_used_and_defined(self):
        for path in DASHBOARDS:
            dashboard = boards.load(path)
            names = {variable["name"] for variable in dashboard["templating"]["list"]}
            self.assertEqual(names, set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(dashboard))), path.name)

    def test_links_lead_to_boards_that_exist(self):
        uids = {boards.load(path)["uid"] for path in DASHBOARDS}
        for path in DASHBOARDS:
            self.assertLessEqual(set(re.findall(r"/d/([\w-]+)", path.read_text())), uids - {boards.load(path)["uid"]}, path.name)


@unittest.skipUnless(PROMTOOL, "no promtool: tests/cluster/build.sh builds it")
class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=ROOT / "tests" / "dashboards")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rules_are_valid(self):
        self.promtool("check", "rules", *RULES)

    def test_alerts_fire_on_their_cause_only(self):
        self.promtool("test", "rules", "rules_test.yaml")

    def test_every_alert_has_a_test(self):
        tested = (ROOT / "tests" / "dashboards" / "rules_test.yaml").read_text()
        for path in RULES:
            for group in yaml.safe_load(path.read_text())["groups"]:
                for rule in group["rules"]:
                    self.assertIn(rule.get("alert") or rule["record"], tested)


if __name__ == "__main__":
    unittest.main()
