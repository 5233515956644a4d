#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel of the build tree: small, old enough libraries, whole; what pip installs from it trains. And the library exports its entry alone."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from workers import BUILD, EXAMPLE, ROOT, TEXT

LIBRARY = BUILD / "libweir-worker.so"


def text_of(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


class Library(unittest.TestCase):
    def test_exports_its_entry_alone(self):
        lines = text_of("objdump", "-T", str(LIBRARY)).splitlines()
        mine = {line.split()[-1] for line in lines if len(line.split()) > 3 and "*UND*" not in line and re.match(r"[0-9a-f]{8,}", line)}
        self.assertIn("weir_worker_main", mine)
        self.assertLessEqual(mine, {"weir_worker_main", "ncclProfiler_v5"})

    def test_neither_it_nor_the_program_needs_python(self):
        for one in (LIBRARY, BUILD / "weir-worker"):
            self.assertNotIn("python", text_of("ldd", str(one)).lower())

    def test_finds_libraries_beside_it_and_theirs(self):
        dynamic = text_of("objdump", "-p", str(LIBRARY))
        self.assertRegex(dynamic, r"RPATH +\$ORIGIN\n")
        self.assertNotIn("RUNPATH", dynamic)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.wheel = text_of(sys.executable, str(ROOT / "worker/python/make_wheel.py"), str(LIBRARY), str(cls.folder)).strip()
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index",
                        "--target", str(cls.folder / "installed"), cls.wheel], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def run_it(self, *words):
        environment = {name: value for name, value in os.environ.items() if name not in ("WEIR_LIBRARY", "PYTHONPATH")}
        return subprocess.run([sys.executable, str(self.folder / "installed/bin" / words[0]), *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, cwd=self.folder,
                              env={**environment, "PYTHONPATH": str(self.folder / "installed"), "WEIR_TERMINATION_LOG": os.devnull})

    def test_is_small_and_named_for_its_floor(self):
        self.assertLessEqual(pathlib.Path(self.wheel).stat().st_size, 15_000_000)
        self.assertRegex(self.wheel, r"/weir_torch-[0-9.]+-py3-none-manylinux_2_35_x86_64\.whl$")

    def test_is_the_same_from_the_same_files(self):
        again = text_of(sys.executable, str(ROOT / "worker/python/make_wheel.py"), str(LIBRARY), str(self.folder / "again")).strip()
        self.assertEqual(pathlib.Path(again).read_bytes(), pathlib.Path(self.wheel).read_bytes())

    def test_has_the_version_of_the_project(self):
        of = re.search(r"project\(weir VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertIn(f"/weir_torch-{of}-", self.wheel)

    def test_its_programs_run(self):
        done = self.run_it("weir-torch", "--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--describe", done.stdout)
        self.assertIn("--lr-schedule", done.stdout)
        self.assertNotIn("--plugin", done.stdout)
        self.assertEqual(self.run_it("weir-tokens", "--help").returncode, 0)

    def test_it_trains(self):
        done = self.run_it("weir-torch", f"--model={EXAMPLE}", "--model-option=width=8", "--model-option=blocks=1", "--seq=8", f"--data={TEXT}", "--steps=2",
                           "--threads=1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_wrong_options_are_told_under_its_name(self):
        done = self.run_it("weir-torch", f"--model={EXAMPLE}", "--plugin=x.so")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"weir-torch: .*--plugin")
        done = self.run_it("weir-torch", f"--model={EXAMPLE}", "--device=cuda")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "weir-torch: --device=cuda: this weir_torch was built without CUDA\n")


if __name__ == "__main__":
    unittest.main()
