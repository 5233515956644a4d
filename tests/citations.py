#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every citation in the repository leads somewhere: a document by its path from the root, a heading of it in quotes, a benchmark by its name.

    // worker/schedule/README.md "Closed forms"

usage: citations.py    looks at all files that git knows and prints those that lead nowhere; exit code 1 if there are any
"""
import functools
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_OURS = ("tests/data/", "LICENSE", "go.sum")
DOCUMENT = re.compile(r'(?<![\w*{}/.-])([\w.][\w./-]*\.md)\b(?:`?(?:,|:)? "([^"]+)"| (\d+(?:\.\d+)*)\b)?')
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CONTINUED = re.compile(r"\n[ \t]*(?://+|#+|\*)?[ \t]*")   # a citation goes on in the next line of a comment


@functools.cache
def headings(document):
    """The titles of a document, without marks of code."""
    lines = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.S).splitlines()
    return {line.lstrip("#").strip().replace("`", "") for line in lines if re.match(r"#+ ", line)} | {
        match.group(1).rstrip(".:") for line in lines if (match := re.match(r"\*\*([^*]+)\*\*", line))}


def wrong(text, folder="", exists=lambda path: (ROOT / path).is_file(), titles=headings):
    """What is wrong with the citations of a text: (offset, reason). `folder` of its file, from the root."""
    found = []
    for match in DOCUMENT.finditer(text):
        path, title, number = match.groups()
        path = path.removeprefix("./")
        near = str(pathlib.PurePosixPath(folder) / path)
        real = path if exists(path) else near if exists(near) else None
        if real is None:
            found.append((match.start(), f"{path} does not exist"))
        elif number:
            found.append((match.start(), f"{path} {number}: a section is cited by its title in quotes"))
        elif title:
            flat = re.sub(r"\s+", " ", CONTINUED.sub(" ", title)).replace("`", "")
            if flat not in titles(real):
                found.append((match.start(), f'{real} has no heading "{flat}"'))
    return found


def anchors(document):
    """What a link may name behind # in a document: its headings, as web pages of repositories write them."""
    return {re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in headings(document)}


def wrong_links(text, name):
    """Relative links of a document that lead nowhere."""
    found, folder = [], pathlib.PurePosixPath(name).parent
    for match in LINK.finditer(text):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"\w+:", target):
            continue
        real = (ROOT / folder / target) if target else ROOT / name
        if not real.exists():
            found.append((match.start(), f"link to {target} leads nowhere"))
        elif anchor and anchor not in anchors(real.resolve().relative_to(ROOT)):
            found.append((match.start(), f"link to {match.group(1)}: no heading is #{anchor}"))
    return found


def tracked():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    for name in names:
        path = ROOT / name
        if name and not name.startswith(NOT_OURS) and not name.endswith("go.sum") and path.is_file() and not path.is_symlink():
            yield name


def read(name):
    """The text of a file; nothing for bytes, and for this file, whose examples are wrong on purpose."""
    try:
        return "" if name == "tests/citations.py" else (ROOT / name).read_text()
    except UnicodeDecodeError:
        return ""


class Citations(unittest.TestCase):
    def test_every_citation_leads_somewhere(self):
        told = []
        for name in tracked():
            text, folder = read(name), str(pathlib.PurePosixPath(name).parent)
            for offset, reason in wrong(text, folder) + (wrong_links(text, name) if name.endswith(".md") else []):
                told.append(f"{name}:{text.count(chr(10), 0, offset) + 1}: {reason}")
        self.assertEqual(told, [], "\n" + "\n".join(told))


class Benchmarks(unittest.TestCase):
    def test_those_that_documents_and_its_help_name_can_be_run(self):
        script = (ROOT / "tests/bench/run").read_text()
        known = {name for names in re.findall(r"^  ([a-z_0-9 |]+)\)$", script, re.M) for name in names.split(" | ")}
        usage = script[script.index("<<'EOF'"):script.index("\nEOF")]
        named = {name: "its help" for name in re.findall(r"^  ([a-z][a-z_]*)\b", usage, re.M)}
        for document in subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
            named.update(dict.fromkeys(re.findall(r"tests/bench/run ([a-z][a-z_]*)\b", (ROOT / document).read_text()), document))
        self.assertGreater(len(named), 20)
        self.assertEqual({name: where for name, where in named.items() if name not in known}, {})


class Rules(unittest.TestCase):
    """The test above can fail."""

    def reasons(self, text):
        known = {"a/README.md": {"Closed forms", "Plan switch"}}
        return [reason for _, reason in wrong(text, "b", known.__contains__, known.__getitem__)]

    def test_what_exists_is_right(self):
        for text in ('// a/README.md "Closed forms".', "// see a/README.md", '// a/README.md "Plan\n  // switch"', "find . ! -name '*.md'"):
            self.assertEqual(self.reasons(text), [], text)

    def test_what_does_not_exist_is_told(self):
        self.assertEqual(self.reasons("// c/README.md"), ["c/README.md does not exist"])
        self.assertEqual(self.reasons('// a/README.md "Open forms"'), ['a/README.md has no heading "Open forms"'])
        self.assertEqual(self.reasons('(`a/README.md` "Open forms")'), ['a/README.md has no heading "Open forms"'])
        self.assertEqual([reason for _, reason in wrong_links("[x](README.md#no-such-heading) [y](#tests)", "tests/README.md")],
                         ["link to README.md#no-such-heading: no heading is #no-such-heading"])
        self.assertEqual(self.reasons("// a/README.md 5.3"), ["a/README.md 5.3: a section is cited by its title in quotes"])


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    else:
        unittest.main()
