#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The archive and the manifest of kubectl-weir for krew: the rules of krew's manifests, and an installation as krew does it.

The newest kubectl-weir of any build folder is packed; without one a script plays it. With KREW=PATH (or krew in PATH) krew itself
installs, else that test is skipped.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "operator" / "cli" / "krew.sh"
URL = "https://example.com/weir/v0"
KREW = os.environ.get("KREW") or shutil.which("krew") or shutil.which("kubectl-krew")


def built():
    programs = sorted(ROOT.glob("build/*/operator/cli/kubectl-weir"), key=lambda path: path.stat().st_mtime)
    return programs[-1] if programs else None


def complaints(name, manifest):
    """Why krew would refuse the manifest: the fields that it needs or does not know, by its documentation."""
    told = []

    def fields(where, given, needed, optional=()):
        told.extend(f"{where}: {field} is missing" for field in needed if not given.get(field))
        told.extend(f"{where}: {field} is unknown" for field in given if field not in needed and field not in optional)

    fields("manifest", manifest, ("apiVersion", "kind", "metadata", "spec"))
    if manifest.get("apiVersion") != "krew.googlecontainertools.github.com/v1alpha2" or manifest.get("kind") != "Plugin":
        told.append("manifest: apiVersion or kind is another one")
    if manifest["metadata"] != {"name": name} or not re.fullmatch(r"[\w-]+", name) or name.startswith("kubectl-"):
        told.append("metadata: the name is not that of the file, or not allowed")
    spec = manifest["spec"]
    fields("spec", spec, ("version", "homepage", "shortDescription", "platforms"), ("description", "caveats"))
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec.get("version", "")):
        told.append("spec: version is no semantic version after a v")
    short = spec.get("shortDescription", "")
    if "\n" in short or len(short) > 50 or short.endswith("."):
        told.append("spec: shortDescription is not a few words in one line")
    for platform in spec.get("platforms", []):
        fields("platform", platform, ("selector", "uri", "sha256", "bin"), ("files",))
        if not re.fullmatch(r"[0-9a-f]{64}", str(platform.get("sha256", ""))):
            told.append("platform: sha256 is none")
        if set(platform.get("selector", {})) - {"matchLabels", "matchExpressions"}:
            told.append("platform: the selector is unknown")
        if set(platform.get("selector", {}).get("matchLabels", {"": ""})) - {"os", "arch"}:
            told.append("platform: the selector has other keys than os and arch")
        for one in platform.get("files", [{}]):
            fields("files", one, ("from", "to"))
    return told


class Krew(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.program = built()
        if cls.program is None:
            cls.program = cls.folder / "kubectl-weir"
            cls.program.write_text("#!/bin/sh\necho kubectl-weir 0.1.0\n")
            cls.program.chmod(0o755)
        cls.made = cls.pack(cls.folder / "out")
        cls.manifest = yaml.safe_load((cls.folder / "out" / "weir.yaml").read_text())
        cls.platform = cls.manifest["spec"]["platforms"][0]
        cls.archive = cls.folder / "out" / cls.platform["uri"].rsplit("/", 1)[1]

    @classmethod
    def pack(cls, folder, program=None, url=URL, homepage="https://example.com/weir"):
        return subprocess.run([SCRIPT, program or cls.program, folder, url, homepage], capture_output=True, text=True, timeout=60)

    def test_the_manifest_is_what_krew_takes(self):
        self.assertEqual(self.made.returncode, 0, self.made.stderr)
        self.assertEqual(complaints("weir", self.manifest), [])
        self.assertEqual(self.platform["selector"], {"matchLabels": {"os": "linux", "arch": "amd64"}})
        self.assertTrue(self.platform["uri"].startswith(URL + "/kubectl-weir-"))

    def test_the_rules_find_faults(self):
        broken = {**self.manifest, "spec": {**self.manifest["spec"], "version": "0.1", "shortDescription": "a\nb"}}
        broken["spec"]["platforms"] = [{**self.platform, "sha256": "x", "size": 3, "selector": {"matchLabels": {"cpu": "amd64"}}}]
        self.assertEqual(len(complaints("weir", broken)), 5)
        self.assertEqual(len(complaints("kubectl-weir", self.manifest)), 1)

    def test_the_archive_is_the_one_of_the_checksum_and_runs_where_krew_puts_it(self):
        self.assertEqual(hashlib.sha256(self.archive.read_bytes()).hexdigest(), self.platform["sha256"])
        store = self.folder / "store"
        with tarfile.open(self.archive) as archive:
            self.assertEqual(archive.getnames(), ["LICENSE", "kubectl-weir"])
            for one in self.platform["files"]:
                archive.extract(one["from"], store / one["to"])
        link = store / ("kubectl-" + self.manifest["metadata"]["name"] + "-link")
        link.symlink_to(store / self.platform["bin"])
        said = subprocess.run([link, "version"], capture_output=True, text=True, timeout=60)
        self.assertEqual((said.returncode, said.stdout), (0, f"kubectl-weir {self.manifest['spec']['version'][1:]}\n"), said.stderr)

    def test_the_same_program_gives_the_same_archive(self):
        self.pack(self.folder / "again")
        self.assertEqual((self.folder / "again" / self.archive.name).read_bytes(), self.archive.read_bytes())

    def test_wrong_words_are_refused_in_one_line(self):
        for words, named in (({"program": "/nowhere"}, "/nowhere: no program"), ({"url": "ftp://x"}, "ftp://x: expected https"),
                             ({"homepage": 'https://x"y'}, "expected https")):
            said = self.pack(self.folder / "wrong", **words)
            self.assertEqual(said.returncode, 2)
            self.assertRegex(said.stderr, f"^krew.sh: .*{re.escape(named)}[^\n]*\n$")

    @unittest.skipUnless(KREW, "no krew")
    def test_krew_installs_it(self):
        environment = {**os.environ, "KREW_ROOT": str(self.folder / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
        said = subprocess.run([KREW, "install", f"--manifest={self.folder / 'out' / 'weir.yaml'}", f"--archive={self.archive}"],
                              capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual(said.returncode, 0, said.stderr)
        said = subprocess.run([self.folder / "krew" / "bin" / "kubectl-weir", "version"], capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)


if __name__ == "__main__":
    unittest.main()
