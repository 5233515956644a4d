#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package weir_torch as a wheel: the Python files, libweir-worker.so, and the libraries that it needs and images may lack.

Fails when a library needs a newer glibc or libstdc++ than the wheel's name promises. Needs ldd, objdump and strip, and no Python package.
usage: make_wheel.py LIBRARY FOLDER    writes FOLDER/weir_torch-VERSION-py3-none-manylinux_2_35_x86_64.whl and prints its path
"""
import argparse
import base64
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME, LARGEST = "weir_torch", 15_000_000   # bytes
GLIBC = (2, 35)   # Debian 12 and Ubuntu 22.04 have it
NEWEST = {"GLIBC": GLIBC, "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
# images with Python and torch have these; others come with the wheel
THEIRS = re.compile(r"^(ld-linux.*|linux-vdso|libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+|libz)\.so")
ENTRIES = "[console_scripts]\nweir-torch = weir_torch.__main__:main\nweir-tokens = weir_torch.tokens:main\n"
DATE = (1980, 1, 1, 0, 0, 0)   # the same bytes for the same files


def text_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(library):
    """{name: path} of the libraries that come with the wheel, with those that they need."""
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", text_of("ldd", str(library)), re.M):
        if path == "not":
            sys.exit(f"{library}: {name} is not on this machine")
        if not THEIRS.match(name):
            found[name] = pathlib.Path(path)
    return found


def newest_symbols(library):
    """{GLIBC: (2, 34)} of what the library takes from others."""
    newest = {}
    for family, version in re.findall(r"\*UND\*.*\(?\b([A-Z]+)_([0-9.]+)\)? ", text_of("objdump", "-T", str(library))):
        numbers = tuple(map(int, version.split(".")))
        newest[family] = max(newest.get(family, ()), numbers)
    return newest


def too_new(library):
    """What the library needs and the wheel's name does not promise."""
    return [f"{library.name} needs {family}_{'.'.join(map(str, version))}, the newest allowed is {'.'.join(map(str, NEWEST[family]))}"
            for family, version in newest_symbols(library).items() if family in NEWEST and version > NEWEST[family]]


def version():
    text = (HERE / NAME / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', text, re.M).group(1)


def files_of(library, scratch):
    """{path in the wheel: content}."""
    content = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted((HERE / NAME).glob("*.py"))}
    for name, path in {"libweir-worker.so": library, **needed(library)}.items():
        copy = scratch / name
        shutil.copyfile(path, copy)
        subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)
        wrong = too_new(copy)
        if wrong:
            sys.exit("\n".join(wrong))
        content[f"{NAME}/{name}"] = copy.read_bytes()
    return content


def tag():
    return f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"


def metadata(of):
    """{path in the wheel: content} of the folder dist-info, but for the list of files."""
    folder = f"{NAME}-{of}.dist-info"
    about = [f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {of}\nSummary: Weir trains models of torch and Hugging Face in a pipeline\n"
             "License: Apache-2.0\nRequires-Python: >=3.10\n"]
    return {f"{folder}/METADATA": about[0].encode(), f"{folder}/entry_points.txt": ENTRIES.encode(),
            f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: make_wheel.py\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode()}


def write(target, content, of):
    record = f"{NAME}-{of}.dist-info/RECORD"
    lines = []
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    content[record] = ("".join(lines) + f"{record},,\n").encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in content.items():
            info = zipfile.ZipInfo(path, DATE)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (0o755 if ".so" in path else 0o644) << 16
            archive.writestr(info, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path, metavar="LIBRARY")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    given = parser.parse_args()
    of = version()
    given.folder.mkdir(parents=True, exist_ok=True)
    target = given.folder / f"{NAME}-{of}-{tag()}.whl"
    with tempfile.TemporaryDirectory() as scratch:
        content = files_of(given.library, pathlib.Path(scratch))
    write(target, {**content, **metadata(of)}, of)
    if target.stat().st_size > LARGEST:
        sys.exit(f"{target} has {target.stat().st_size} bytes, at most {LARGEST} are promised")
    print(target)


if __name__ == "__main__":
    main()
