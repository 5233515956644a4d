# SPDX-License-Identifier: Apache-2.0
"""The CRD on the real API server: examples, admission rules, kubectl's view of it."""
import pathlib

import lab
from lab import check

CLUSTER = pathlib.Path(lab.HERE)


def test_examples_are_accepted_by_the_api_server(namespace):
    for example in sorted((lab.ROOT / "crds" / "examples").glob("*.yaml")):
        lab.kubectl("-n", namespace, "apply", "--server-side", "--dry-run=server", "-f", example)


def test_a_manifest_that_is_applied_twice_changes_nothing(namespace):
    for example in sorted((lab.ROOT / "crds" / "examples").glob("*.yaml")):
        text = example.read_text() + "  suspend: true\n"
        lab.kubectl("-n", namespace, "apply", "-f", "-", text_input=text)
        again = lab.kubectl("-n", namespace, "apply", "-f", "-", text_input=text)
        check("unchanged" in again, f"{example.name}: {again}")
        lab.kubectl("-n", namespace, "delete", "-f", "-", text_input=text)


def manifests(kind):
    """(file, expected text) of the bad manifests whose first line says `# expect: <kind>...: <text>`."""
    for path in sorted((CLUSTER / "bad").glob("*.yaml")):
        head, _, text = path.read_text().splitlines()[0].removeprefix("# expect: ").partition(": ")
        if head.startswith(kind):
            yield path, head, text


def test_bad_manifests_are_refused_with_the_field(namespace):
    count = 0
    for path, _, text in manifests("refused"):
        done = lab.kubectl("-n", namespace, "apply", "-f", path, ok=None)
        check(done.returncode != 0, f"{path.name}: was accepted")
        check(text in done.stderr, f"{path.name}: expected {text!r}, got {done.stderr.strip()!r}")
        count += 1
    check(count >= 8, f"only {count} manifests")
    return f"{count} manifests"


def test_bad_manifests_are_not_accepted_by_the_operator(namespace):
    cases = list(manifests("Accepted=False"))
    for path, _, _ in cases:
        lab.kubectl("-n", namespace, "apply", "-f", path)
    for path, head, text in cases:
        name = lab.kubectl("-n", namespace, "get", "-f", path, "-o", "jsonpath={.metadata.name}")
        reason = head.partition("/")[2]

        def refused(name=name, reason=reason, text=text):
            entry = lab.condition(lab.job(namespace, name), "Accepted")
            return entry["status"] == "False" and entry["reason"] == reason and text in entry["message"]
        lab.wait_until(f"{path.name}: {head} with {text!r}", refused, 30, show=lambda name=name: lab.show_condition(lab.job(namespace, name), "Accepted"))
    check(not lab.pods(namespace), "a job that is not accepted has pods")
    check(len(cases) >= 6, f"only {len(cases)} manifests")
    return f"{len(cases)} manifests"


def test_explain_knows_every_field_of_the_first_level(_):
    text = lab.kubectl("explain", "pipelinejob.spec")
    for field in ("adaptation", "batch", "schedule", "workerGroups", "network"):
        check(field in text, f"kubectl explain does not list {field}")
