#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each external command of each script comes from a Debian package that tests/setup installs for it, or that every Debian has.

Reads shell scripts with a real parser (tree-sitter, from PyPI) and Python scripts with `ast`; finds the packages of commands in
dpkg's own lists, so it installs those packages first. usage: commands_test.py
"""
import ast
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")
# the groups of tests/setup that are installed before a script of the folder runs; the longest name that fits counts
GROUPS = {
    "tests/demo": ["cluster"], "tests/cluster": ["cluster"], "tests/venv": ["cluster"],
    "tests/gpu": ["build", "cuda"], "worker/cmake": ["cuda"], "tests/coverage": ["build", "coverage"], "tests/bare": ["build", "bare"], "tests/torch": ["torch"],
    "tests/perfetto": ["perfetto"],
    "tests/dashboards": ["cluster", "boards"],
    "worker/python": ["torch"],
    "": ["build", "cluster"],
}
# builtins and keywords of the shell; and programs that a script asks for before it uses them, or that users bring
KNOWN = set(subprocess.run(["bash", "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True).stdout.split())
OPTIONAL = {"nvidia-smi", "go"}
# what is given to these as an argument runs as a command, too
WRAPPERS = {"env", "exec", "nice", "nsenter", "setsid", "timeout", "xargs", "unshare", "chroot", "command", "sh", "flock"}
RUNS_COMMANDS = {"run", "Popen", "call", "check_call", "check_output", "sh"}   # Python functions that take a command
WORD = re.compile(r"[a-z][a-z0-9_.+-]*")


def lines_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()


def scripts():
    """(path, language) of each tracked or new file that starts with #!, and of the modules that such files load."""
    for name in lines_of("git", "ls-files", "-co", "--exclude-standard"):
        path = ROOT / name
        if not path.is_file():
            continue
        with open(path, "rb") as file:
            first = file.readline(80)
        if re.match(rb"#!.*[ /](bash|sh)\s", first) or name.endswith(".sh"):
            yield name, "shell"
        elif re.match(rb"#!.*python3", first) or name.endswith(".py"):
            yield name, "python"


class Packages:
    """Who owns which command, by dpkg; and what a bare Debian has."""

    # what is asked for by the name of a package that depends on the one with the file
    METAPACKAGES = {"python3-minimal": "python3", "gcc-12": "gcc", "g++-12": "g++"}

    def __init__(self):
        self.owners = {}
        for listing in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
            package = listing.stem.split(":")[0]
            for line in listing.read_text().splitlines():
                folder, _, name = line.rpartition("/")
                if folder in ("/bin", "/sbin", "/usr/bin", "/usr/sbin"):
                    self.owners.setdefault(name, set()).add(package)
        self.everywhere = {name for name, priority, essential in
                           (line.split("|") for line in lines_of("dpkg-query", "-W", "-f", "${Package}|${Priority}|${Essential}\n"))
                           if priority == "required" or essential == "yes"} | {"apt"}
        self.groups = {}

    def of(self, command):
        """The packages that have it, under its own name or behind an alternative (awk is mawk)."""
        found = set(self.owners.get(command, ()))
        link = pathlib.Path("/etc/alternatives", command)
        if not found and link.is_symlink():
            found |= self.owners.get(os.path.basename(os.path.realpath(link)), set())
        return {self.METAPACKAGES.get(package, package) for package in found}

    def of_groups(self, groups):
        key = tuple(groups)
        if key not in self.groups:
            self.groups[key] = set(lines_of("tests/setup", "--list", *groups)) | self.everywhere
        return self.groups[key]


def groups_of(name):
    return GROUPS[max((folder for folder in GROUPS if name == folder or name.startswith(folder + "/") or folder == ""), key=len)]


class Shell:
    """The commands of shell scripts."""

    def __init__(self):
        import tree_sitter
        import tree_sitter_bash
        self.parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

    def nodes(self, text):
        cursor = [self.parser.parse(text.encode()).root_node]
        while cursor:
            node = cursor.pop()
            yield node
            cursor.extend(node.children)

    def functions(self, text):
        """Of all functions, and of those that run their arguments ("$@" stands where a command stands), the names."""
        functions, wrappers = set(), set()
        for node in self.nodes(text):
            if node.type != "function_definition":
                continue
            name = node.child_by_field_name("name").text.decode()
            functions.add(name)
            if re.search(r'(^|[;{|&(!]|if|then|do|while|until|exec|timeout \S+|nsenter \S+)\s*"\$@"', node.text.decode(), re.MULTILINE):
                wrappers.add(name)
        return functions, wrappers

    def commands(self, text, functions, wrappers):
        """For each place of a command the words that could be it: (True, [its name]), and (False, arguments) of what runs its arguments."""
        for node in self.nodes(text):
            if node.type != "command" or node.child_by_field_name("name") is None:
                continue
            name = node.child_by_field_name("name").text.decode()
            if WORD.fullmatch(name):
                yield True, [name]
            if name in WRAPPERS or name in wrappers:
                words = [word.text.decode() for word in node.children_by_field_name("argument") if word.type == "word"]
                yield False, [word for word in words if WORD.fullmatch(word)]


def python_commands(text):
    """The same of a Python program: the first constant of a call that runs a command; of a wrapper the others, too."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in RUNS_COMMANDS or not node.args:
            continue
        words = node.args[0].elts if isinstance(node.args[0], (ast.List, ast.Tuple)) else node.args
        constants = [w.value for w in words if isinstance(w, ast.Constant) and isinstance(w.value, str) and WORD.fullmatch(w.value)]
        if words and isinstance(words[0], ast.Constant) and constants and words[0].value == constants[0]:
            yield True, constants[:1]
            if constants[0] in WRAPPERS:
                yield False, constants[1:]


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run([ROOT / "tests" / "setup", "build", "cluster"], check=False).returncode:
            raise unittest.SkipTest("who owns a command is known of installed packages only")
        cls.packages, cls.shell = Packages(), Shell()
        cls.sources = [(name, language, (ROOT / name).read_text()) for name, language in scripts()]
        known = [cls.shell.functions(text) for _, language, text in cls.sources if language == "shell"]
        cls.functions, cls.wrappers = (set().union(*sets) for sets in zip(*known))

    def missing(self, name, language, text):
        allowed = self.packages.of_groups(groups_of(name))
        found = self.shell.commands(text, self.functions, self.wrappers) if language == "shell" else python_commands(text)
        for certain, words in found:
            at_home = KNOWN | OPTIONAL | self.functions
            command = next((word for word in words if word in at_home or self.packages.of(word)), words[0] if certain else None)
            if command is None or command in at_home:
                continue
            owners = self.packages.of(command)
            if not owners & allowed:
                yield f"{name}: {command} is of {' or '.join(sorted(owners)) or 'no package'}, not of tests/setup {' '.join(groups_of(name))}"

    def test_every_command_comes_from_a_package_that_is_installed_for_it(self):
        problems = sorted({problem for source in self.sources for problem in self.missing(*source)})
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_a_command_of_another_package_is_found(self):
        text = 'x=$(pgrep -f "$1") || timeout 5 ccache --version | xargs -r sysctl\n'
        self.assertEqual({p.split(":")[1].split()[0] for p in self.missing("worker/cmake/x.sh", "shell", text)}, {"pgrep", "sysctl"})
        text = 'import subprocess\nsubprocess.run(["nsenter", "--net=x", "iperf3"], check=True)\nlab.sh("conntrack", "-L")\n'
        self.assertEqual({p.split(":")[1].split()[0] for p in self.missing("worker/cmake/x.py", "python", text)}, {"iperf3", "conntrack"})

    def test_scripts_are_found(self):
        names = {name for name, _, _ in self.sources}
        self.assertTrue({"tests/run", "tests/demo", "tests/setup", ".ci/run", "tests/cluster/images.sh", "tests/cluster/lab.py"} <= names, names)


if __name__ == "__main__":
    environment = pathlib.Path(subprocess.run([ROOT / "tests" / "venv", REQUIREMENTS], capture_output=True, text=True, check=True).stdout.strip())
    if pathlib.Path(sys.prefix) != environment.parent:
        os.execv(environment / "python3", [str(environment / "python3"), __file__, *sys.argv[1:]])
    unittest.main()
