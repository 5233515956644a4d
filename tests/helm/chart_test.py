#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: lint, four renderings, roles within an allow list, restricted pod, closed schema, committed copies.

Needs helm of tests/cluster/build.sh (or one in PATH) and Debian's python3-yaml; without helm all tests are skipped.
"""
import pathlib
import shutil
import subprocess
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "weir"
VALUES = sorted((ROOT / "tests" / "helm" / "values").glob("*.yaml"))
MONITORING = ("--api-versions", "monitoring.coreos.com/v1")
CRD = "files/pipelinejobs.weir.dev.yaml"

# (group, resource): verbs. Whatever the chart asks for must be in here; tests/faults/run roles shows that none is idle.
ALLOWED = {
    ("weir.dev", "pipelinejobs"): {"list", "watch", "delete"},
    ("weir.dev", "pipelinejobs/status"): {"patch"},
    ("weir.dev", "pipelinejobs/finalizers"): {"update"},
    ("", "pods"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "services"): {"get", "list", "watch", "create"},
    ("", "configmaps"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "nodes"): {"list", "watch"},
    ("events.k8s.io", "events"): {"create", "list", "patch"},
    ("authentication.k8s.io", "tokenreviews"): {"create"},
    ("scheduling.volcano.sh", "podgroups"): {"get", "list", "watch", "create", "patch", "delete"},
    ("coordination.k8s.io", "leases"): {"create", "get", "update"},
    ("", "secrets"): {"create", "get", "update"},
}
BY_NAME = {("coordination.k8s.io", "leases"): "weir-operator", ("", "secrets"): "weir-operator-keys"}


def find_helm():
    sys.path.insert(0, str(ROOT / "tests" / "cluster"))
    import lab
    cached = lab.bin_dir() / "helm"
    return str(cached) if cached.exists() else shutil.which("helm")


HELM = find_helm()


def find_operator():
    """The newest weir-operator of any build folder."""
    built = sorted(ROOT.glob("build/*/operator/app/weir-operator"), key=lambda path: path.stat().st_mtime)
    return str(built[-1]) if built else None


OPERATOR = find_operator()


def helm(*arguments):
    return subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def render(values, *arguments):
    done = helm("template", "weir", CHART, "-n", "weir-system", "--kube-version", "1.35.4", "-f", values, *MONITORING, *arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects, kind):
    return [o for o in objects if o["kind"] == kind]


@unittest.skipUnless(HELM, "no helm: tests/cluster/build.sh builds it")
class Chart(unittest.TestCase):
    def each_rendering(self):
        for values in VALUES:
            with self.subTest(values=values.name):
                yield values.name, render(values)

    def test_lint_strict_finds_nothing(self):
        for values in VALUES:
            done = helm("lint", "--strict", CHART, "--kube-version", "1.35.4", "-f", values)
            self.assertEqual(done.returncode, 0, f"{values.name}: {done.stdout}{done.stderr}")

    def test_every_object_has_kind_name_and_labels_of_the_release(self):
        for _, objects in self.each_rendering():
            self.assertGreaterEqual(len(objects), 5)
            for o in objects:
                self.assertTrue(o["apiVersion"] and o["kind"] and o["metadata"]["name"])
                if o["kind"] != "CustomResourceDefinition" and not o["metadata"]["name"].endswith("-extra"):
                    self.assertEqual(o["metadata"]["labels"]["app.kubernetes.io/instance"], "weir", o["metadata"]["name"])

    def test_copies_in_the_chart_equal_their_sources(self):
        pairs = [(CHART / CRD, ROOT / "crds" / "pipelinejobs.weir.dev.yaml")]
        pairs += [(CHART / "files" / "rules" / f.name, f) for f in (ROOT / "dashboards" / "rules").glob("*.yaml")]
        pairs += [(CHART / "files" / "dashboards" / f.name, f) for f in (ROOT / "dashboards").glob("*.json")]
        for copy, source in pairs:
            self.assertEqual(copy.read_bytes(), source.read_bytes(), f"cp {source} {copy}")
        self.assertEqual(len(pairs), len(list((CHART / "files").rglob("*.*"))), "a file of the chart has no source")

    def test_rendered_crd_equals_the_committed_one(self):
        [crd] = of_kind(render(VALUES[0]), "CustomResourceDefinition")
        self.assertEqual(crd["metadata"].pop("annotations"), {"helm.sh/resource-policy": "keep"})
        self.assertEqual(crd, yaml.safe_load((ROOT / "crds" / "pipelinejobs.weir.dev.yaml").read_text()))

    def test_crd_stays_small_enough_for_client_side_apply(self):
        self.assertLess((ROOT / "crds" / "pipelinejobs.weir.dev.yaml").stat().st_size, 64 * 1024)

    def test_roles_stay_within_the_allow_list(self):
        for name, objects in self.each_rendering():
            for role in of_kind(objects, "ClusterRole") + of_kind(objects, "Role"):
                if "-view" in role["metadata"]["name"] or "-edit" in role["metadata"]["name"]:
                    continue  # for users, not for the operator
                for rule in role["rules"]:
                    for group in rule["apiGroups"]:
                        for resource in rule["resources"]:
                            self.check_rule(name, role, rule, (group, resource))

    def check_rule(self, name, role, rule, key):
        self.assertIn(key, ALLOWED, f"{name}: {role['metadata']['name']}")
        self.assertLessEqual(set(rule["verbs"]), ALLOWED[key], f"{name}: {key}")
        if key in BY_NAME:
            self.assertEqual(role["kind"], "Role")
            self.assertEqual(role["metadata"]["namespace"], "weir-system")
            if rule["verbs"] != ["create"]:
                self.assertEqual(rule["resourceNames"], [BY_NAME[key]])

    def test_watch_namespaces_leave_nothing_of_jobs_in_the_cluster_role(self):
        objects = render(ROOT / "tests" / "helm" / "values" / "namespaced.yaml")
        [role] = of_kind(objects, "ClusterRole")
        self.assertEqual([rule["resources"] for rule in role["rules"]], [["tokenreviews"]])
        self.assertEqual({r["metadata"]["namespace"] for r in of_kind(objects, "Role")}, {"team-a", "team-b", "weir-system"})

    def test_pod_passes_pod_security_restricted(self):
        for _, objects in self.each_rendering():
            [deployment] = of_kind(objects, "Deployment")
            pod = deployment["spec"]["template"]["spec"]
            [container] = pod["containers"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
            self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
            self.assertNotIn("cpu", container["resources"]["limits"])
            self.assertEqual(container["args"][0], "run")
            self.assertEqual(set(deployment["spec"]["selector"]["matchLabels"]),
                             {"app.kubernetes.io/name", "app.kubernetes.io/instance"})

    def test_operator_is_scraped_by_annotations_unless_they_say_no(self):
        for name, expected in (("default", {"prometheus.io/scrape": "true"}),
                               ("everything", {"prometheus.io/scrape": "false", "example.com/team": "training"})):
            [deployment] = of_kind(render(ROOT / "tests" / "helm" / "values" / f"{name}.yaml"), "Deployment")
            self.assertEqual(deployment["spec"]["template"]["metadata"]["annotations"], {"prometheus.io/port": "8080", **expected})

    @unittest.skipUnless(OPERATOR, "weir-operator is not built")
    def test_operator_knows_every_flag_that_the_chart_passes(self):
        for name, objects in self.each_rendering():
            [deployment] = of_kind(objects, "Deployment")
            arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            done = subprocess.run([OPERATOR, arguments[0], "--dry-run", *arguments[1:]], capture_output=True, text=True, timeout=20)
            self.assertEqual(done.returncode, 0, f"{name}: {arguments}: {done.stderr}")

    def test_helm_test_runs_the_check_as_the_operator(self):
        for name, objects in self.each_rendering():
            [pod] = of_kind(objects, "Pod")
            [deployment] = of_kind(objects, "Deployment")
            [service] = of_kind(objects, "Service")
            operator = deployment["spec"]["template"]["spec"]
            self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")
            for field in ("serviceAccountName", "securityContext"):
                self.assertEqual(pod["spec"][field], operator[field])
            for field in ("image", "securityContext"):
                self.assertEqual(pod["spec"]["containers"][0][field], operator["containers"][0][field])
            self.assertFalse(service["spec"]["selector"].items() <= pod["metadata"]["labels"].items(), "the Service selects the check")
            arguments = pod["spec"]["containers"][0]["args"]
            self.assertEqual(arguments[0], "check")
            asked = {a for a in arguments if a.startswith("--prometheus")}
            self.assertEqual(asked, {a for a in operator["containers"][0]["args"] if a.startswith("--prometheus")})
            if OPERATOR:
                done = subprocess.run([OPERATOR, *arguments, "--kubeconfig=/nonexistent"], capture_output=True, text=True, timeout=20)
                self.assertIn("/nonexistent", done.stderr, f"{name}: {arguments}: {done.stderr}")

    def test_password_for_prometheus_comes_from_a_secret(self):
        objects = render(ROOT / "tests" / "helm" / "values" / "everything.yaml")
        for pod in (of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"], of_kind(objects, "Pod")[0]["spec"]):
            [container] = pod["containers"]
            self.assertIn("--prometheus-basic-auth-dir=/etc/weir/prometheus-auth", container["args"])
            self.assertIn({"name": "prometheus-auth", "mountPath": "/etc/weir/prometheus-auth", "readOnly": True}, container["volumeMounts"])
            self.assertIn({"name": "prometheus-auth", "secret": {"secretName": "prometheus-login", "defaultMode": 0o440}}, pod["volumes"])
        both = helm("template", "weir", CHART, "--kube-version", "1.35.4", "--set", "prometheus.basicAuthSecret=a,prometheus.bearerTokenFile=/b")
        self.assertIn("exclude each other", both.stderr)

    def test_service_names_the_ports_of_the_container(self):
        for _, objects in self.each_rendering():
            [service] = [s for s in of_kind(objects, "Service")]
            [deployment] = of_kind(objects, "Deployment")
            container = deployment["spec"]["template"]["spec"]["containers"][0]
            self.assertIn(f"--control-service={service['metadata']['name']}", container["args"])
            ports = {p["name"]: p["containerPort"] for p in container["ports"]}
            self.assertEqual({p["targetPort"]: p["port"] for p in service["spec"]["ports"]}, ports)

    def test_monitors_need_the_api_of_the_prometheus_operator(self):
        values = ROOT / "tests" / "helm" / "values" / "monitored.yaml"
        kinds = {o["kind"] for o in render(values)}
        self.assertLessEqual({"ServiceMonitor", "PodMonitor", "PrometheusRule"}, kinds)
        bare = helm("template", "weir", CHART, "--kube-version", "1.35.4", "-f", values)
        self.assertNotIn("monitoring.coreos.com", bare.stdout)

    def test_disruption_budget_needs_two_replicas(self):
        self.assertEqual(len(of_kind(render(VALUES[0]), "PodDisruptionBudget")), 1)
        self.assertEqual(of_kind(render(VALUES[0], "--set", "replicaCount=1"), "PodDisruptionBudget"), [])

    def test_schema_refuses_unknown_keys_and_bad_values(self):
        for setting in ("replicas=3", "prometheus.uri=http://x", "control.tls.mode=CertManager", "log.level=loud", "replicaCount=0",
                        "prometheus.scrapeInterval=5", "gang.kai.enabled=true"):
            done = helm("template", "weir", CHART, "--kube-version", "1.35.4", "--set", setting)
            self.assertNotEqual(done.returncode, 0, setting)

    def test_schema_knows_every_value(self):
        def keys(node, path=""):
            for key, value in node.items():
                yield path + key
                if isinstance(value, dict):
                    yield from keys(value, path + key + ".")
        import json
        schema = json.loads((CHART / "values.schema.json").read_text())
        for path in keys(yaml.safe_load((CHART / "values.yaml").read_text())):
            node = schema
            for part in path.split("."):
                node = node.get("properties", {}).get(part, {} if node.get("type") == "object" and "properties" not in node else None)
                self.assertIsNotNone(node, path)


if __name__ == "__main__":
    unittest.main()
