#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/results.py on a small ctest project: a program that passes, one that fails, one that crashes in its second test, and a test
without results of its own. usage: results_test.py"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

RESULTS = pathlib.Path(__file__).with_name("results.py")
PROGRAM = r'''#!/usr/bin/env python3
import os, sys
kind = sys.argv[1]
chosen = next((a.split("=")[1] for a in sys.argv if a.startswith("--gtest_filter=")), "")
if "--gtest_list_tests" in sys.argv:
    print("Suite.\n  First\n  Second")
elif kind == "crash" and chosen != "Suite.First":
    os.abort()
if not chosen and "--gtest_list_tests" not in sys.argv:
    second = "<failure message='x'/>" if kind == "fail" else "<skipped/>"
    result = "completed" if kind == "fail" else "skipped"
    with open(os.environ.get("GTEST_OUTPUT", "xml:/dev/null").removeprefix("xml:"), "w") as out:
        out.write(f"<testsuites><testsuite><testcase classname='Suite' name='First' status='run' result='completed' time='1'/>"
                  f"<testcase classname='Suite' name='Second' status='run' result='{result}' time='2'>{second}</testcase>"
                  f"<testcase classname='Suite' name='Third' status='notrun' result='suppressed' time='0'/></testsuite></testsuites>")
sys.exit(1 if kind == "fail" and chosen != "Suite.First" else 0)
'''


class Results(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.build = pathlib.Path(self.folder.name)
        (self.build / "tests" / "results").mkdir(parents=True)
        self.program = self.build / "program.py"
        self.program.write_text(PROGRAM)

    def tearDown(self):
        self.folder.cleanup()

    def run_results(self, *kinds, beside=()):
        text = ""
        for kind in kinds:
            text += f'add_test({kind} "{sys.executable}" "{self.program}" "{kind}")\n'
            if kind != "plain":
                text += f'set_tests_properties({kind} PROPERTIES ENVIRONMENT "GTEST_OUTPUT=xml:{self.build}/tests/results/{kind}.xml")\n'
        (self.build / "CTestTestfile.cmake").write_text(text.replace('"plain")', '"plain" "--gtest_filter=Suite.First")'))
        (self.build / "part.begin").touch()
        code = subprocess.run(["ctest", "--test-dir", self.build, "--output-junit", self.build / "part.xml"], check=False, capture_output=True).returncode
        return self.output("count", "part", self.build, self.build, str(code), *beside)

    def output(self, *arguments):
        return subprocess.run([RESULTS, *arguments], check=True, capture_output=True, text=True).stdout.splitlines()

    def test_tests_are_counted_not_programs(self):
        self.assertEqual(self.run_results("pass", "plain")[-1], "2 0 1")

    def test_a_test_that_fails_is_named(self):
        self.assertEqual(self.run_results("pass", "fail")[-2:], ["FAILED part: Suite.Second", "2 1 1"])

    def test_after_a_crash_the_test_is_named(self):
        self.assertEqual(self.run_results("crash")[-2:], ["FAILED part: Suite.Second", "1 1 0"])

    def test_results_of_an_earlier_run_do_not_count(self):
        self.run_results("pass")
        self.program.write_text(PROGRAM.replace('if not chosen and "--gtest', 'if False and "--gtest'))
        self.assertIn("wrote no results", self.run_results("pass")[0])

    def test_no_test_is_a_failure(self):
        self.assertEqual(self.run_results()[-1], "0 1 0")

    def test_what_failed_beside_others_counts_when_it_has_run_alone(self):
        self.assertEqual(self.run_results("fail", "pass", beside=["--beside"])[-1], "2 0 1")
        self.assertEqual(self.output("alone", self.build)[-1], "0 1 0")
        (self.build / "again.jsonl").unlink()
        self.program.write_text(PROGRAM.replace('sys.exit(1 if kind == "fail"', 'sys.exit(1 if not chosen and kind == "fail"'))
        self.assertEqual(self.run_results("fail", beside=["--beside"])[-1], "1 0 0")
        self.assertEqual(self.output("alone", self.build)[-1], "1 0 0")

    def test_a_program_that_failed_as_a_whole_and_a_test_with_a_process_of_its_own_run_again_as_they_did(self):
        self.program.write_text(PROGRAM.replace('sys.exit(1 if kind == "fail" and', 'sys.exit(1 if kind in ("pass", "plain") and').replace('!= "Suite.First"', '== ("Suite.First" if kind == "plain" else "")'))
        self.assertEqual(self.run_results("pass", "plain", beside=["--beside"])[-1], "1 0 1")
        self.assertEqual(self.output("alone", self.build)[-1], "0 2 0")
        self.program.write_text(PROGRAM)
        self.assertEqual(self.output("alone", self.build)[-1], "2 0 0")

    def test_the_end_names_what_failed_in_every_kind_of_part(self):
        self.run_results("pass", "fail")
        (self.build / "faults.log").write_text("PASS faults.one (2 s)\nFAIL faults.two (69 s): no room\n  rules\n  of it\nPASS faults.three (1 s)\n")
        (self.build / "chart.log").write_text("FAIL ops: what a test prints\n=====\nFAIL: test_x (Chart)\n-----\nAssertionError: 1\n\n=====\nERROR: test_y (Chart)\nno file\n")
        self.assertEqual(self.output("failed", self.build), [
            "FAILED part: Suite.Second",
            "FAILED chart: FAIL: test_x (Chart)", "-----", "AssertionError: 1", "", "FAILED chart: ERROR: test_y (Chart)", "no file",
            "FAILED faults: FAIL faults.two (69 s): no room", "  rules", "  of it"])


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    else:
        unittest.main()
