#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words and lengths that this repository keeps to.

- A comment is a sentence with a subject; it does not begin with a bare "Of", "What", "Those", "Who" or "Likewise".
- One thing has one name: the names that a better one has replaced do not come back.
- Documents stay short enough to be read: the main README, the results, the maps of operator and worker, the README of a room. Tables that a test
  writes (tests/recorded/recording.h) do not count.

usage: words.py    prints the places that break a rule; exit code 1 if there are any
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BARE = re.compile(r"(^|[^:/])//+ (Of|What|Those|Who|Likewise)\b")
REPLACED = re.compile(r"way_back|goes_back|sync_tail|\bkappa\b|company|[Gg]reeter|[Pp]arked|[Ll]eaver|[Ss]urroundings|keep_house|StepCard|how-manieth")
LINES = {"README.md": 131, "worker/app/README.md": 140, "tests/bench/RESULTS.md": 264, "operator/README.md": 200, "worker/README.md": 200, "crds/README.md": 320,
         "operator/controller/reconcile/README.md": 170, "operator/planner/README.md": 130}   # of users, or of several rooms
ROOM = 120   # lines of any other README
WRITTEN_BY_A_TEST = re.compile(r"<!-- Made by .*?<!-- End -->", re.S)


def tracked(*patterns):
    return subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def places(pattern, text):
    """The lines of a text that hold the pattern: [(number, line)]."""
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


class Words(unittest.TestCase):
    def found(self, pattern, names):
        return [f"{name}:{number}: {line}" for name in names for number, line in places(pattern, (ROOT / name).read_text())]

    def test_comments_have_a_subject(self):
        told = self.found(BARE, tracked("operator/*.h", "operator/*.cpp", "worker/*.h", "worker/*.cpp", "worker/*.cu"))
        self.assertEqual(told, [], "\n" + "\n".join(told))

    def test_replaced_names_stay_away(self):
        told = self.found(REPLACED, tracked("operator/*.h", "operator/*.cpp", "operator/*.md", "operator/*.txt", "worker/*.h", "worker/*.cpp", "worker/*.cu",
                                            "worker/*.md", "worker/*.txt"))
        self.assertEqual(told, [], "\n" + "\n".join(told))

    def test_documents_are_short(self):
        for name in tracked("README.md", "*/README.md", "tests/bench/RESULTS.md"):
            with self.subTest(name):
                text = WRITTEN_BY_A_TEST.sub("", (ROOT / name).read_text())
                self.assertLessEqual(text.count("\n"), LINES.get(name, ROOM))


class Rules(unittest.TestCase):
    """The tests above can fail."""

    def test_what_breaks_a_rule_is_found(self):
        self.assertEqual(places(BARE, "int a;\n  // Of the last step.\n// Offers"), [(2, "// Of the last step.")])
        self.assertEqual([number for number, _ in places(REPLACED, "double kappa;\nkappas\nclass Leaver {")], [1, 3])


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    else:
        unittest.main()
