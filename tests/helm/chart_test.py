#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: lint, renderings of all kinds, roles within an allow list, restricted pod, closed schema, linked files.
What the schema takes and what the operator takes is compared in values_test.py.

Needs helm of tests/cluster/build.sh (or one in PATH) and Debian's python3-yaml; without helm all tests are skipped.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "weir"
VALUES = sorted((ROOT / "tests" / "helm" / "values").glob("*.yaml"))
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
BY_NAME = {("coordination.k8s.io", "leases"): {"weir-operator", "weir-gauge"}, ("", "secrets"): {"weir-operator-keys", "weir-gauge-keys"}}


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
    return render_as("weir", "weir-system", "-f", values, *arguments)


def render_as(release, namespace, *arguments):
    done = helm("template", release, CHART, "-n", namespace, "--kube-version", "1.35.4", *arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects, kind):
    return [o for o in objects if o["kind"] == kind]


def pods_of(objects):
    """The pod of the operator, and that of `helm test`, as (metadata, spec)."""
    [deployment], [check] = of_kind(objects, "Deployment"), of_kind(objects, "Pod")
    template = deployment["spec"]["template"]
    return (template["metadata"], template["spec"]), (check["metadata"], check["spec"])


def environment(container):
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


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

    def test_the_packaged_chart_holds_the_crd_the_rules_and_the_dashboards(self):
        sources = {"files/pipelinejobs.weir.dev.yaml": ROOT / "crds" / "pipelinejobs.weir.dev.yaml"}
        sources |= {f"files/dashboards/{f.relative_to(ROOT / 'dashboards')}": f for f in [*(ROOT / "dashboards").glob("*.json"),
                                                                                          *(ROOT / "dashboards" / "rules").iterdir()]}
        with tempfile.TemporaryDirectory() as folder:
            done = helm("package", CHART, "-d", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            with tarfile.open(next(pathlib.Path(folder).glob("*.tgz"))) as package:
                packed = {m.name.removeprefix("weir/"): package.extractfile(m).read() for m in package if m.name.startswith("weir/files/")}
        self.assertEqual(packed, {name: source.read_bytes() for name, source in sources.items()})

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
                self.assertEqual(len(rule["resourceNames"]), 1)
                self.assertLessEqual(set(rule["resourceNames"]), BY_NAME[key])

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
            settings = environment(deployment["spec"]["template"]["spec"]["containers"][0])
            done = subprocess.run([OPERATOR, arguments[0], "--dry-run", *arguments[1:]], capture_output=True, text=True, timeout=20, env=settings)
            self.assertEqual(done.returncode, 0, f"{name}: {arguments}: {done.stderr}")

    def test_helm_test_runs_the_check_as_the_operator(self):
        for name, objects in self.each_rendering():
            [pod] = of_kind(objects, "Pod")
            [deployment] = of_kind(objects, "Deployment")
            [service] = of_kind(objects, "Service")
            operator = deployment["spec"]["template"]["spec"]
            self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")
            for field in ("serviceAccountName", "securityContext", "volumes"):
                self.assertEqual(pod["spec"].get(field), operator.get(field))
            for field in ("image", "securityContext", "env", "envFrom", "volumeMounts"):
                self.assertEqual(pod["spec"]["containers"][0].get(field), operator["containers"][0].get(field))
            self.assertFalse(service["spec"]["selector"].items() <= pod["metadata"]["labels"].items(), "the Service selects the check")
            arguments = pod["spec"]["containers"][0]["args"]
            self.assertEqual(arguments[0], "check")
            settings = environment(pod["spec"]["containers"][0])
            self.assertEqual(settings, environment(operator["containers"][0]))
            if OPERATOR:
                done = subprocess.run([OPERATOR, *arguments, "--kubeconfig=/nonexistent"], capture_output=True, text=True, timeout=20, env=settings)
                self.assertIn("/nonexistent", done.stderr, f"{name}: {arguments}: {done.stderr}")

    def test_password_for_prometheus_comes_from_a_secret(self):
        objects = render(ROOT / "tests" / "helm" / "values" / "everything.yaml")
        for pod in (of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"], of_kind(objects, "Pod")[0]["spec"]):
            [container] = pod["containers"]
            self.assertEqual(environment(container)["WEIR_PROMETHEUS_BASIC_AUTH_DIR"], "/etc/weir/prometheus-auth")
            self.assertIn({"name": "prometheus-auth", "mountPath": "/etc/weir/prometheus-auth", "readOnly": True}, container["volumeMounts"])
            self.assertIn({"name": "prometheus-auth", "secret": {"secretName": "prometheus-login", "defaultMode": 0o444}}, pod["volumes"])
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

    def test_monitors_that_are_switched_on_are_rendered_wherever_helm_runs(self):
        kinds = [o["kind"] for o in render(ROOT / "tests" / "helm" / "values" / "monitored.yaml")]
        for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
            self.assertEqual(kinds.count(kind), 1, kind)
            self.assertNotIn(kind, [o["kind"] for o in render(VALUES[0])])

    def test_workers_are_scraped_as_often_as_the_operator_is_told(self):
        for interval, told, good in (("2s", "2s", True), ("500ms", "1s", True), ("60s", "1m", True), ("30s", "2s", False), ("1m", "59s", False)):
            done = helm("template", "weir", CHART, "--kube-version", "1.35.4", "--set",
                        f"workerPodMonitor.enabled=true,workerPodMonitor.interval={interval},prometheus.scrapeInterval={told}")
            self.assertEqual(done.returncode == 0, good, done.stderr)
            if not good:
                self.assertIn(f"workerPodMonitor.interval {interval} is above prometheus.scrapeInterval {told}", done.stderr)

    def test_pod_names_no_user_so_that_openshift_can_choose_one(self):
        for name, objects in self.each_rendering():
            for _, pod in pods_of(objects):
                for context in (pod["securityContext"], pod["containers"][0]["securityContext"]):
                    self.assertFalse({"runAsUser", "runAsGroup", "fsGroup"} & set(context), name)
        own = render(VALUES[0], "--set", "podSecurityContext.runAsUser=1000,podSecurityContext.fsGroup=1000,securityContext.privileged=false")
        for _, pod in pods_of(own):
            self.assertEqual((pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]), (1000, 1000))
            self.assertIs(pod["containers"][0]["securityContext"]["privileged"], False)

    def test_labels_of_users_reach_objects_and_pods_and_replace_none_of_ours(self):
        objects = render(ROOT / "tests" / "helm" / "values" / "everything.yaml")
        for o in objects:
            if o["kind"] == "CustomResourceDefinition" or o["metadata"]["name"].endswith("-extra"):
                continue
            self.assertEqual(o["metadata"]["labels"]["example.com/cost"], "ml", o["metadata"]["name"])
            self.assertEqual(o["metadata"]["labels"]["app.kubernetes.io/instance"], "weir")
        (metadata, pod), _ = pods_of(objects)
        self.assertEqual(metadata["labels"]["example.com/mesh"], "off")
        self.assertEqual(metadata["labels"]["app.kubernetes.io/name"], "gauge")
        self.assertIn({"name": "cache", "emptyDir": {}}, pod["volumes"])
        self.assertIn({"name": "cache", "mountPath": "/cache"}, pod["containers"][0]["volumeMounts"])
        self.assertEqual(pod["containers"][0]["envFrom"], [{"configMapRef": {"name": "proxy"}}])

    def test_names_of_users_are_those_of_all_objects(self):
        for setting, expected in (("nameOverride=gauge", "weir-gauge"), ("fullnameOverride=gauge", "gauge")):
            objects = render(VALUES[0], "--set", setting)
            self.assertEqual(of_kind(objects, "Service")[0]["metadata"]["name"], expected)
            self.assertEqual(environment(pods_of(objects)[0][1]["containers"][0])["WEIR_NAME"], expected)

    def test_names_that_yaml_reads_as_other_types_stay_strings(self):
        everything = ("--set", "dashboards.enabled=true,serviceMonitor.enabled=true,workerPodMonitor.enabled=true,prometheusRule.enabled=true,"
                      "networkPolicy.enabled=true", "--set-string", "watchNamespaces={1e3,null,010}")

        def walk(node, path):
            if isinstance(node, dict):
                for key, value in node.items():
                    self.assertIsInstance(key, str, path)
                    walk(value, f"{path}.{key}")
            elif isinstance(node, list):
                for value in node:
                    walk(value, path)
            elif path.rsplit(".", 1)[-1] in ("name", "namespace", "resourceNames") or "abels." in path or ".selector." in path:
                self.assertIsInstance(node, str, path)

        for release, namespace, more in (("true", "123", "nameOverride=yes"), ("no", "2e3", "fullnameOverride=no"), ("y", "on", "fullnameOverride=y"),
                                         ("a1e5", "on", "nameOverride=no,fullnameOverride=off"), ("n", "0x1", "commonLabels.a=yes,podLabels.b=off")):
            with self.subTest(release=release, namespace=namespace):
                objects = render_as(release, namespace, *everything, "--set-string", more)
                for o in objects:
                    if o["kind"] != "CustomResourceDefinition":
                        walk(o, o["kind"])
                self.assertEqual(of_kind(objects, "Deployment")[0]["metadata"]["namespace"], namespace)
                self.assertEqual(of_kind(objects, "Deployment")[0]["metadata"]["labels"]["app.kubernetes.io/instance"], release)
                self.assertEqual({r["metadata"]["namespace"] for r in of_kind(objects, "RoleBinding")}, {namespace, "1e3", "null", "010"})

    def test_parent_charts_may_switch_it_by_a_condition(self):
        with tempfile.TemporaryDirectory() as folder:
            parent = pathlib.Path(folder)
            shutil.copytree(CHART, parent / "charts" / "weir")
            (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n"
                                               "dependencies: [{name: weir, version: '*', condition: weir.enabled}]\n")
            for value, count in (("true", 1), ("false", 0)):
                (parent / "values.yaml").write_text(f"global: {{imageRegistry: r}}\nweir: {{enabled: {value}}}\n")
                done = helm("template", "all", parent, "--kube-version", "1.35.4")
                self.assertEqual((done.returncode, done.stdout.count("kind: Deployment")), (0, count), done.stderr)

    def test_two_releases_share_no_object_no_lease_and_no_dashboard(self):
        more = ("--set", "dashboards.enabled=true,dashboards.namespace=monitoring,crds.install=false,watchNamespaces={jobs}")
        first = render_as("weir", "weir-system", *more)
        for release, namespace in (("weir", "team-b"), ("other", "weir-system"), ("other", "team-b")):
            second = render_as(release, namespace, *more)
            with self.subTest(release=release, namespace=namespace):
                self.assertFalse(self.identities(first) & self.identities(second))
                self.assertFalse(self.leases(first) & self.leases(second))
                for part in ("uid", "title", "file"):
                    self.assertFalse(self.dashboards(first, part) & self.dashboards(second, part), part)
                self.assertTrue(all(len(uid) <= 40 for uid in self.dashboards(second, "uid")))

    @staticmethod
    def identities(objects):
        return {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}

    def leases(self, objects):
        """(namespace, name) of what the operator's own Role lets it write; its flags must say the same."""
        [own] = [r for r in of_kind(objects, "Role") if any("leases" in rule["resources"] for rule in r["rules"])]
        names = {(resource, name) for rule in own["rules"] for resource in rule["resources"] for name in rule.get("resourceNames", [])}
        name = environment(pods_of(objects)[0][1]["containers"][0])["WEIR_NAME"]
        self.assertEqual(names, {("leases", name), ("secrets", f"{name}-keys")})
        return {(own["metadata"]["namespace"], *entry) for entry in names}

    @staticmethod
    def dashboards(objects, part):
        maps = [o for o in of_kind(objects, "ConfigMap") if "-dashboard-" in o["metadata"]["name"]]
        assert len(maps) == 3
        return {file if part == "file" else json.loads(text)[part] for o in maps for file, text in o["data"].items()}

    def test_rules_and_dashboards_ask_for_the_lease_of_their_release(self):
        text = json.dumps(render_as("other", "team-b", "--set", "dashboards.enabled=true,prometheusRule.enabled=true"))
        self.assertNotIn("weir-operator\\\"}", text)
        self.assertIn('leader_election_master_status{name=\\"other-operator\\",namespace=\\"team-b\\"}', text)

    def test_links_between_dashboards_stay_in_the_release(self):
        objects = render_as("other", "team-b", "--set", "dashboards.enabled=true")
        texts = [text for o in of_kind(objects, "ConfigMap") if "-dashboard-" in o["metadata"]["name"] for text in o["data"].values()]
        links = {uid for text in texts for uid in re.findall(r"/d/([\w-]+)", text)}
        self.assertEqual(links, {json.loads(text)["uid"] for text in texts})

    def test_prometheus_headers_reach_operator_and_check(self):
        for _, pod in pods_of(render(VALUES[0], "--set-string", "prometheus.headers.X-Scope-OrgID=a|b,prometheus.headers.X-Other=c")):
            self.assertEqual(environment(pod["containers"][0])["WEIR_PROMETHEUS_HEADERS"], "X-Other: c\nX-Scope-OrgID: a|b")

    def test_own_certificates_reach_operator_and_check(self):
        for values in ({}, {"existingSecret": ""}, None):
            text = json.dumps(render(VALUES[0], "--set-json", f"control.tls={json.dumps(values)}"))
            self.assertNotIn("control-tls", text)
            self.assertNotIn("WEIR_CONTROL_TLS_DIR", text)
        for _, pod in pods_of(render(VALUES[0], "--set", "control.tls.existingSecret=weir-control-tls")):
            [container] = pod["containers"]
            [mount] = [m for m in container["volumeMounts"] if m["name"] == "control-tls"]
            self.assertEqual(mount["mountPath"], environment(container)["WEIR_CONTROL_TLS_DIR"])
            self.assertNotIn("subPath", mount, "a kubelet never brings that up to date")
            self.assertIn({"name": "control-tls", "secret": {"secretName": "weir-control-tls", "defaultMode": 0o444}}, pod["volumes"])

    def test_drains_are_not_blocked_by_pods_that_are_not_ready(self):
        [budget] = of_kind(render(VALUES[0]), "PodDisruptionBudget")
        self.assertEqual(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow")
        half = render(VALUES[0], "--set", "podDisruptionBudget.minAvailable=50%")
        self.assertEqual(of_kind(half, "PodDisruptionBudget")[0]["spec"]["minAvailable"], "50%")
        for least in ("2", "5", "51%", "100%"):
            done = helm("template", "weir", CHART, "--kube-version", "1.35.4", "--set", f"podDisruptionBudget.minAvailable={least}")
            self.assertIn(f"minAvailable {least} of 2 replicas lets no node be drained", done.stderr)
        render(VALUES[0], "--set", "podDisruptionBudget.minAvailable=67%,replicaCount=4")

    def test_items_of_lists_in_the_crd_have_no_defaults(self):
        """kubectl apply compares lists as a whole: a default in an item is a difference for ever."""
        def walk(node, path, in_list):
            if not isinstance(node, dict):
                return
            if in_list:
                self.assertNotIn("default", node, path)
            for name, child in node.get("properties", {}).items():
                walk(child, f"{path}.{name}", in_list)
            walk(node.get("items"), path + "[]", True)
            walk(node.get("additionalProperties"), path + "{}", in_list)
        crd = yaml.safe_load((ROOT / "crds" / "pipelinejobs.weir.dev.yaml").read_text())
        walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", False)

    def test_disruption_budget_needs_two_replicas(self):
        self.assertEqual(len(of_kind(render(VALUES[0]), "PodDisruptionBudget")), 1)
        self.assertEqual(of_kind(render(VALUES[0], "--set", "replicaCount=1"), "PodDisruptionBudget"), [])

    def test_schema_refuses_unknown_keys_and_bad_values(self):
        for setting in ("replicas=3", "prometheus.uri=http://x", "fullnameOverride=7b", "commonLabels.a=b c", "control.tls.mode=CertManager", "control.tls.existingSecret=a b", "log.level=loud", "replicaCount=0",
                        "prometheus.scrapeInterval=5", "gang.kai.enabled=true"):
            done = helm("template", "weir", CHART, "--kube-version", "1.35.4", "--set", setting)
            self.assertNotEqual(done.returncode, 0, setting)

    def test_schema_knows_every_value(self):
        def keys(node, path=""):
            for key, value in node.items():
                yield path + key
                if isinstance(value, dict):
                    yield from keys(value, path + key + ".")
        schema = json.loads((CHART / "values.schema.json").read_text())
        for path in keys(yaml.safe_load((CHART / "values.yaml").read_text())):
            node = schema
            for part in path.split("."):
                free = node.get("type") == "object" and "properties" not in node
                node = node if free else node.get("properties", {}).get(part)
                self.assertIsNotNone(node, path)


if __name__ == "__main__":
    unittest.main()
