#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets torch for Linux from PyPI start without CUDA's libraries (4 GB), for work on CPUs.

torch's libraries name them, so the loader wants each of them and their functions. This program writes one small library with all functions
that torch's libraries lack, beside them and under all those names. Each function returns 100, which is cudaErrorNoDevice, or a text: torch then has no GPU.
usage: python no_cuda.py    in the environment where torch is installed
"""
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

NO_DEVICE = 100
TEXTS = re.compile("GetErrorString|GetErrorName|GetLastErrorString|GetStatusString")   # those that return a text


def text_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def write(stub, functions, version):
    """A library with functions of one version; "" = of none."""
    texts = sorted(name for name in functions if TEXTS.search(name))
    codes = sorted(set(functions) - set(texts))
    texts, codes = ("".join(f".globl {name}\n.type {name},@function\n{name}:\n" for name in names) for names in (texts, codes))
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        script.write(f"{version or 'WEIR'} {{ global: *; }};\n")
        script.flush()
        options = [f"-Wl,--version-script={script.name}"] if version else []
        subprocess.run(["gcc", "-shared", "-nostdlib", f"-Wl,-soname={stub.name}", *options, "-x", "assembler", "-", "-o", str(stub)], check=True, text=True,
                       input=f".text\n{codes}\tmovl ${NO_DEVICE}, %eax\n\tret\n{texts}\tleaq text(%rip), %rax\n\tret\n"
                             'text: .asciz "no CUDA here"\n.section .note.GNU-stack\n')


def main():
    folder = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
    libraries = sorted(folder.glob("lib*.so*"))
    needed, wanted, given, owner = set(), set(), set(), {}
    for library in libraries:
        dynamic = text_of("objdump", "-p", str(library))
        needed |= set(re.findall(r"^ +NEEDED +(\S+)$", dynamic, re.M))
        for of, versions in re.findall(r"^ +required from (\S+):\n((?: +0x.*\n)+)", dynamic, re.M):
            owner.update((line.split()[-1], of) for line in versions.splitlines())
        for line in text_of("nm", "-D", str(library)).splitlines():
            kind, name = line.split()[-2:]
            name, _, version = name.partition("@")
            if kind in "Uw":
                wanted.add((name, version))
            else:
                given.add(name)
    lacking = {name for name in needed - {library.name for library in libraries} if re.match(r"lib(cu|nv|nccl)", name)}
    functions, loose = {}, set()   # version -> names; names without one
    for name, version in wanted:
        if name not in given and owner.get(version) in lacking:
            functions.setdefault(version, set()).add(name)
        elif name not in given and not version and re.match(r"[a-z]\w*$|__cuda\w+$", name):
            loose.add(name)
    versions = {owner[version]: version for version in functions}
    for of in lacking:   # nothing says which library a name without a version belongs to
        version = versions.get(of, "")
        write(folder / of, functions[version] if version else loose, version)
    print(f"{sum(map(len, functions.values())) + len(loose)} functions of {len(lacking)} libraries: {' '.join(sorted(lacking))}", file=sys.stderr)


if __name__ == "__main__":
    main()
