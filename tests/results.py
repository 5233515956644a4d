#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what ctest ran, and tells which tests took longest. tests/run calls it.

usage: tests/results.py count PART LOGS BUILD CODE [--beside]
                                           LOGS/PART.xml is what ctest wrote with --output-junit, CODE its exit code; prints
                                           "PASSED FAILED SKIPPED" as the last line, and names each test that failed. --beside: other
                                           parts ran at the same time, so a test that failed counts only when it has run alone
       tests/results.py alone LOGS         runs the tests that failed beside other parts, one at a time; prints as count
       tests/results.py slowest LOGS [N]   the N slowest tests of all parts (default 20)
       tests/results.py failed LOGS        each test of any part that failed, with the first lines that say why

A test program writes its tests into BUILD/tests/results/NAME.xml (tests/CMakeLists.txt). One that ended without it has crashed or
was stopped: it runs again test by test, so that the test is named. Times of all tests go to LOGS/tests.tsv.
"""
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as tree

LIMIT, WHOLE = 180, 1800   # seconds of one test, and of a whole program, that runs again
AS_A_WHOLE = "as a whole: ctest reports a failure, each test passes"
LINE = re.compile(r"^(?:PASS|FAIL|SKIP) (\S+) \((\d+) s\)")
NEXT = re.compile(r"^(?:PASS|FAIL|SKIP) |^\[\d\d:|^=====")   # ends what is said of one failure
WHY = 12      # lines of it


def programs_of(build):
    """{name of a ctest test: (command, environment)}"""
    text = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    found = {}
    for test in json.loads(text)["tests"]:
        values = {p["name"]: p["value"] for p in test.get("properties", [])}
        found[test["name"]] = (test.get("command", []), values.get("ENVIRONMENT", []), values.get("WORKING_DIRECTORY", build))
    return found


def tests_in(path):
    """[(name, seconds, verdict)] of the XML file of a test program."""
    rows = []
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "notrun":
            continue   # not of this shard, left out by a filter, or disabled
        verdict = "fail" if case.find("failure") is not None else "skip" if case.get("result") == "skipped" else "pass"
        rows.append((f"{case.get('classname')}.{case.get('name')}", float(case.get("time", 0)), verdict))
    return rows


def run_alone(command, folder, test=None):
    """The verdict of one test in a process of its own, or of the command as it is, and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
    chosen, limit = ([f"--gtest_filter={test}"], LIMIT) if test else ([], WHOLE)
    try:
        done = subprocess.run([*command, *chosen], check=False, capture_output=True, text=True, timeout=limit, cwd=folder, env=environment)
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        code, output = 1, f"no end after {limit} s"
    return "fail" if code else "skip" if "[  SKIPPED ]" in output else "pass", output


def one_by_one(command, folder):
    """As tests_in, each test of the program in a process of its own."""
    listed = subprocess.run([*command, "--gtest_list_tests"], check=False, capture_output=True, text=True, cwd=folder).stdout
    rows, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if not line.startswith(" "):
            suite = name
            continue
        test = suite + name.strip()
        if "DISABLED_" in test:
            continue
        verdict, output = run_alone(command, folder, test)
        rows.append((test, 0.0, verdict))
        if verdict == "fail":
            print(f"--- {test}, run alone:\n" + "\n".join(output.splitlines()[-30:]))
    return rows


def results_of(case, build, program, begin):
    """The tests that one entry of ctest's file stands for: [(name, seconds, verdict)]. begin: when the part began."""
    name, failed = case.get("name"), case.get("status") == "fail"
    command, environment, folder = program
    if not any(setting.startswith("GTEST_OUTPUT=") for setting in environment):
        return [(name, float(case.get("time", 0)), "fail" if failed else "pass" if case.get("status") == "run" else "skip")]
    path = pathlib.Path(build) / "tests" / "results" / f"{name}.xml"
    try:
        inside = tests_in(path) if path.stat().st_mtime >= begin else None
    except (OSError, tree.ParseError):
        inside = None
    if inside is None:
        print(f"--- {name} wrote no results (crash or time limit); its tests one by one:")
        inside = one_by_one(command, folder)
    if failed and not any(verdict == "fail" for _, _, verdict in inside):
        inside.append((f"{name} {AS_A_WHOLE}", 0.0, "fail"))
    return inside


def count(part, logs, build, code, beside):
    try:
        cases = list(tree.parse(logs / f"{part}.xml").getroot().iter("testcase"))
    except (OSError, tree.ParseError):
        cases = []
    rows, again, programs, begin = [], [], programs_of(build), (logs / f"{part}.begin").stat().st_mtime
    for case in cases:
        command, environment, folder = program = programs.get(case.get("name"), ([], [], build))
        for name, seconds, verdict in results_of(case, build, program, begin):
            if verdict == "fail" and beside:
                one = name if any(e.startswith("GTEST_OUTPUT=") for e in environment) and not name.endswith(AS_A_WHOLE) else None
                again.append({"part": part, "test": name, "one": one, "command": command, "folder": folder})
            else:
                rows.append((name, seconds, verdict))
    if again:
        with open(logs / "again.jsonl", "a", encoding="utf-8") as out:
            out.writelines(json.dumps(entry) + "\n" for entry in again)
        print("\n".join(f"failed beside other parts, will run alone: {entry['test']}" for entry in again))
    elif (code or not rows) and not any(verdict == "fail" for _, _, verdict in rows):
        rows.append((f"ctest ended with {code}" if rows else "no test ran", 0.0, "fail"))
    report(part, logs, rows)


def alone(logs):
    rows = []
    for line in (logs / "again.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        verdict, output = run_alone(entry["command"], entry["folder"], entry["one"])
        rows.append((f"{entry['test']} (of {entry['part']})", 0.0, verdict))
        print(f"{entry['test']} of part {entry['part']} failed beside other parts; alone: {verdict}")
        if verdict == "fail":
            print("\n".join(output.splitlines()[-40:]))
    report("alone", logs, rows)


def report(part, logs, rows):
    with open(logs / "tests.tsv", "a", encoding="utf-8") as out:
        for name, seconds, verdict in rows:
            out.write(f"{part}\t{name}\t{seconds:.3f}\t{verdict}\n")
    print_failed((part, *row) for row in rows)
    print(*(sum(verdict == wanted for _, _, verdict in rows) for wanted in ("pass", "fail", "skip")))


def print_failed(rows):
    """rows: as rows_of tells them."""
    for part, name, _, verdict in rows:
        if verdict == "fail":
            print(f"FAILED {part}: {name}")


def rows_of(logs):
    """[(part, name, seconds, verdict)] of what `report` has told."""
    told = logs / "tests.tsv"
    return [line.split("\t") for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []


def slowest(logs, number):
    rows = [(float(seconds), part, name) for part, name, seconds, _ in rows_of(logs)]
    for log in logs.glob("*.log"):   # of the parts that print lines
        rows += [(float(m[2]), log.stem, m[1]) for m in map(LINE.match, log.read_text(errors="replace").splitlines()) if m]
    for seconds, part, name in sorted(rows, reverse=True)[:number]:
        print(f"{seconds:7.1f} s  {part:10} {name}")


def failed(logs):
    """Short enough for the end of a log of which only the end is kept."""
    print_failed(rows_of(logs))
    for log in sorted(logs.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            of_a_part = line.startswith("FAIL ") and LINE.match(line)
            if of_a_part or line.startswith(("FAIL: ", "ERROR: ")):   # the others are unittest's
                why = list(itertools.takewhile(lambda text: not NEXT.match(text), lines[number + 1:]))[:WHY]
                print(f"FAILED {log.stem}: " + "\n".join(text[:400] for text in [line, *why]))


def main():
    what, rest = sys.argv[1:2], [a for a in sys.argv[2:] if a != "--beside"]
    if what == ["count"] and len(rest) == 4:
        count(rest[0], pathlib.Path(rest[1]), rest[2], int(rest[3]), "--beside" in sys.argv)
    elif what == ["alone"] and len(rest) == 1:
        alone(pathlib.Path(rest[0]))
    elif what == ["slowest"] and len(rest) in (1, 2):
        slowest(pathlib.Path(rest[0]), int(rest[1]) if len(rest) == 2 else 20)
    elif what == ["failed"] and len(rest) == 1:
        failed(pathlib.Path(rest[0]))
    else:
        print(__doc__)
        return 0 if what in (["-h"], ["--help"]) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
