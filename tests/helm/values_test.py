#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Values of the chart: null in every place, and the schema's limits against those of the operator's own flags.

Needs helm and weir-operator; tests without them are skipped.
"""
import concurrent.futures
import re
import subprocess
import unittest

import yaml

from chart_test import CHART, HELM, OPERATOR, environment, helm, of_kind

ALL_ON = ("serviceMonitor.enabled=true,workerPodMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true,"
          "networkPolicy.enabled=true")

# (value, set as; least, most; below, above): the limits are those of the operator, or narrower ones of the chart.
LIMITS = [
    ("kubeApi.qps", 1, 10000, 0.5, 10001),
    ("kubeApi.burst", 1, 10000, 0, 10001),
    ("concurrentReconciles", 1, 64, 0, 65),
    ("leaderElection.leaseDurationSeconds", 11, 86400, 10, 86401),
    ("leaderElection.renewDeadlineSeconds", 3, 14, 2, 15),
    ("leaderElection.retryPeriodSeconds", 1, 9, 0, 10),
    ("control.port", 1024, 65535, None, 65536),
    ("prometheus.scrapeInterval", "1s", "9999h", "0s", "500ms"),
]


def flags_of(values, key):
    """How the chart passes a value."""
    return {"kubeApi.qps": "--kube-api-qps", "kubeApi.burst": "--kube-api-burst", "concurrentReconciles": "--concurrent-reconciles",
            "leaderElection.leaseDurationSeconds": "--lease-duration", "leaderElection.renewDeadlineSeconds": "--renew-deadline",
            "leaderElection.retryPeriodSeconds": "--retry-period", "control.port": "--control-port",
            "prometheus.scrapeInterval": "--prometheus-scrape-interval"}[key] + f"={values}"


def template(*arguments):
    return helm("template", "weir", CHART, "-n", "x", "--kube-version", "1.35.4", *arguments)


def container_of(rendered):
    [deployment] = of_kind([o for o in yaml.safe_load_all(rendered) if o], "Deployment")
    return deployment["spec"]["template"]["spec"]["containers"][0]


def dry_run(arguments, settings=None):
    return subprocess.run([OPERATOR, "run", "--dry-run", *arguments], capture_output=True, text=True, timeout=30, env=settings or {})


def keys(node, path=""):
    for key, value in node.items():
        yield path + key
        if isinstance(value, dict):
            yield from keys(value, f"{path}{key}.")


def at_once(function, items):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(zip(items, pool.map(function, items)))


@unittest.skipUnless(HELM, "no helm: tests/cluster/build.sh builds it")
class Values(unittest.TestCase):
    def test_null_anywhere_renders_or_is_refused_by_the_schema(self):
        every = list(keys(yaml.safe_load((CHART / "values.yaml").read_text())))
        rendered = 0
        for key, done in at_once(lambda key: template("--set", ALL_ON, "--set", f"{key}=null"), every):
            with self.subTest(key=key):
                if done.returncode != 0:
                    self.assertIn("values don't meet the specifications of the schema", done.stderr)
                    continue
                rendered += 1
                for o in yaml.safe_load_all(done.stdout):
                    if o:
                        self.assertTrue(o["kind"] and o["metadata"]["name"])
                self.assertNotRegex(done.stdout, r"%!|<nil>|<no value>")
        self.assertGreater(rendered, 30)

    @unittest.skipUnless(OPERATOR, "weir-operator is not built")
    def test_limits_of_the_schema_are_those_of_the_flags(self):
        for key, least, most, below, above in LIMITS:
            for value in (least, most):
                done = template("--set", f"{key}={value}")
                self.assertEqual(done.returncode, 0, f"{key}={value}: {done.stderr}")
                container = container_of(done.stdout)
                self.assertIn(flags_of(value, key), re.sub(r"(\d)s\b", r"\1", "\n".join(container["args"])) + "\n" + "\n".join(container["args"]))
                ran = dry_run(container["args"][1:], environment(container))
                self.assertEqual(ran.returncode, 0, f"{key}={value}: {ran.stderr}")
            for value in (below, above):
                if value is None:
                    continue
                self.assertNotEqual(template("--set", f"{key}={value}").returncode, 0, f"{key}={value}")
                unit = "s" if key.startswith("leaderElection") else ""
                self.assertEqual(dry_run([flags_of(f"{value}{unit}", key)]).returncode, 2, f"the operator takes {key}={value}")

    @unittest.skipUnless(OPERATOR, "weir-operator is not built")
    def test_odd_values_that_the_schema_takes_start_the_operator(self):
        for settings in (["--set-string", 'prometheus.extraMatchers=cluster="eu-1"\\,team=~"a|b"'],
                         ["--set", "prometheus.url=https://prom.example.com:8443/prometheus/"], ["--set", "prometheus.url=http://[fd00::1]:9090"],
                         ["--set", "prometheus.namespaceLabel="], ["--set", "extraArgs={--log-level=debug,--log-level=warn}"],
                         ["--set-json", "kubeApi.qps=1.5"], ["--set", "control.tls.existingSecret=weir.control-tls"], ["--set", "extraArgs={--control-tls-dir=/tls}"], ["--set-string", "prometheus.headers.X-Scope-OrgID=a: b #c"]):
            done = template(*settings)
            self.assertEqual(done.returncode, 0, f"{settings}: {done.stderr}")
            container = container_of(done.stdout)
            ran = dry_run(container["args"][1:], environment(container))
            self.assertEqual(ran.returncode, 0, f"{settings}: {ran.stderr}")

    def test_values_that_the_operator_would_refuse_are_refused(self):
        for settings in ("control.port=8080", "control.port=8081", "prometheus.url=prometheus:9090", "prometheus.url=http://u:p@prometheus",
                         "prometheus.scrapeInterval=1500m0s", "extraArgs={}x", "extraArgs={--loud}", "extraArgs={x}", "extraArgs={--name=a}",
                         "prometheus.headers.a b=c", "image.repository=a b", "image.repository=https://r/a", "image.repository=r/a:1",
                         "image.repository=r/Team/a", "image.tag=a/b", "image.tag= v1", "extraEnv[0].name=A,extraEnv[0].value=1", "extraEnv[0].value=a", "prometheus.caConfigMap=A_B", "watchNamespaces={a b}", "image.tag=5"):
            done = template("--set", settings)
            self.assertNotEqual(done.returncode, 0, settings)

    def test_a_release_whose_service_could_not_be_named_says_so(self):
        done = helm("template", "7b", CHART, "--kube-version", "1.35.4")
        self.assertIn("must begin with a letter", done.stderr)
        self.assertIn("fullnameOverride", done.stderr)
        self.assertEqual(template("--set", "fullnameOverride=b7").returncode, 0)

    @unittest.skipUnless(OPERATOR, "weir-operator is not built")
    def test_extra_arguments_of_the_schema_are_options_of_run(self):
        import json
        schema = json.loads((CHART / "values.schema.json").read_text())
        named = set(re.search(r"\((?:volcano)\|\(([a-z|-]+)\)=", schema["definitions"]["argument"]["pattern"]).group(1).split("|"))
        help_text = subprocess.run([OPERATOR, "run", "--help"], capture_output=True, text=True, timeout=20).stdout
        known = set(re.findall(r"^ +--([a-z-]+)", help_text, re.M)) - {"help", "dry-run", "volcano"}
        set_by_the_chart = {"namespace", "name", "control-port", "control-service", "metrics-port", "health-port"}
        self.assertEqual(named, known - set_by_the_chart)


if __name__ == "__main__":
    unittest.main()
