#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of grafana/dashboard-linter, and what else makes a dashboard readable.

Two rules do not fit and are left out: template-job-rule with template-instance-rule, and target-job-rule with target-instance-rule. They want
variables `job` and `instance` in each query. Weir's metrics name their PipelineJob themselves, so that queries work with any scrape configuration.
"""
import re
import subprocess
import sys
import unittest

import boards

FOLDER = boards.ROOT / "dashboards"
COUNTER = re.compile(r"(?:\b(rate|increase)\()?(\b\w+_total)\b")


def each():
    """(where, panel) of all boards."""
    for path in boards.PATHS:
        for panel in boards.panels(boards.load(path)):
            yield f"{path.name}: {panel['title']}", panel


class Linter(unittest.TestCase):
    def test_template_datasource_rule(self):
        for path in boards.PATHS:
            [variable] = [v for v in boards.load(path)["templating"]["list"] if v["type"] == "datasource"]
            self.assertEqual((variable["name"], variable["label"], variable["query"]), ("datasource", "Data source", "prometheus"), path.name)

    def test_template_on_time_change_reload_rule(self):
        for path in boards.PATHS:
            for variable in boards.load(path)["templating"]["list"]:
                if variable["type"] == "query":
                    self.assertEqual(variable["refresh"], 2, f"{path.name}: {variable['name']}")

    def test_uneditable_dashboard(self):
        for path in boards.PATHS:
            self.assertIs(boards.load(path)["editable"], False, path.name)

    def test_panel_datasource_rule_and_no_targets_rule(self):
        for where, panel in each():
            self.assertTrue(panel["targets"], where)
            for thing in (panel, *panel["targets"]):
                self.assertEqual(thing["datasource"], {"type": "prometheus", "uid": "${datasource}"}, where)

    def test_panel_title_description_rule(self):
        for where, panel in each():
            self.assertTrue(panel["title"], where)
            self.assertRegex(panel["description"], r"^.{10,}\.$", f"{where}: a sentence")

    def test_panel_units_rule(self):
        for where, panel in each():
            self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], where)

    def test_target_rate_interval_rule(self):
        for where, panel in each():
            for target in panel["targets"]:
                for window in re.findall(r"\brate\([^[\]]*\[([^\]]*)\]", target["expr"]):
                    self.assertEqual(window, "$__rate_interval", where)

    def test_target_counter_agg_rule(self):
        for where, panel in each():
            for target in panel["targets"]:
                for call, name in COUNTER.findall(target["expr"]):
                    self.assertIn(call, ("rate", "increase"), f"{where}: {name}")


class Readable(unittest.TestCase):
    """What boards are looked at for: no panel without words for having no data, no flood of curves, no colour that means nothing."""

    def test_a_panel_that_may_be_empty_says_why(self):
        for where, panel in each():
            if panel["type"] != "table" and "or vector(0)" not in panel["targets"][0]["expr"]:
                self.assertTrue(panel["fieldConfig"]["defaults"].get("noValue"), where)

    def test_only_numbers_with_a_limit_have_colours(self):
        for where, panel in each():
            if panel["type"] == "stat":
                steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                self.assertEqual(panel["options"]["colorMode"], "none" if len(steps) == 1 else "value", where)

    def test_curves_stay_few_at_64_ranks(self):
        bounded = {"op", "part", "line", "kind", "state", "reason", "tier", "outcome", "step", "result", "condition", "method", "code", "endpoint",
                   "resource", "instance", "revision"}
        for where, panel in each():
            if panel["type"] in ("timeseries", "state-timeline", "bargauge"):
                for target in panel["targets"]:
                    names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                    if names - bounded:
                        self.assertRegex(target["expr"], r"\b(bottomk|topk)\(10,", where)

    def test_rows_are_questions_of_which_the_first_is_open(self):
        for path in boards.PATHS:
            found = [panel for panel in boards.load(path)["panels"] if panel["type"] == "row"]
            self.assertEqual([row["collapsed"] for row in found], [False] + [True] * (len(found) - 1), path.name)
            self.assertTrue(all(row["panels"] for row in found[1:]), path.name)

    def test_refresh_is_no_faster_than_usual(self):
        for path in boards.PATHS:
            self.assertIn(boards.load(path)["refresh"], ("10s", "30s"), path.name)

    def test_jobs_are_chosen_from_all_that_exist(self):
        for path in boards.PATHS:
            for variable in boards.load(path)["templating"]["list"]:
                if variable["name"] in ("namespace", "pipelinejob"):
                    self.assertIn("label_values(weir_job_condition", variable["definition"], path.name)

    def test_annotations_are_sentences(self):
        for path in boards.PATHS:
            for annotation in boards.load(path)["annotations"]["list"]:
                self.assertRegex(annotation["titleFormat"], r"^[^.]* [^.]* .*\{\{\w+\}\}|^\{\{\w+\}\} \w+ ", path.name)

    def test_titles_that_may_be_empty_exist(self):
        titles = {panel["title"] for path in boards.PATHS for panel in boards.panels(boards.load(path))}
        for reason, names in boards.EMPTY_WITHOUT.items():
            self.assertLessEqual(names, titles, reason)


class Source(unittest.TestCase):
    def test_dashboards_are_those_of_their_source(self):
        done = subprocess.run([sys.executable, FOLDER / "source" / "make.py", "--check"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
