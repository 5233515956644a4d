#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the dashboards: fleet.json, pipelinejob.json and operator.json beside this folder, from the *_board.py of it.

usage: dashboards/source/make.py [--check]     --check writes nothing; exit code 1 if a file differs from its source
"""
import importlib
import json
import pathlib
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
NAMES = {"fleet": "fleet_board", "pipelinejob": "job_board", "operator": "operator_board"}


LINE = 150   # characters


def written(value, indent=0):
    """JSON, with what fits on a line on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= LINE or not isinstance(value, (dict, list)):
        return line
    parts = [f"{json.dumps(k)}: {written(v, indent + 1)}" for k, v in value.items()] if isinstance(value, dict) else [written(v, indent + 1) for v in value]
    before, after = "{}" if isinstance(value, dict) else "[]"
    return before + "\n" + ",\n".join(" " * (indent + 1) + part for part in parts) + "\n" + " " * indent + after


def boards():
    """(path, text) of each dashboard."""
    sys.path.insert(0, str(HERE))
    for name, module in NAMES.items():
        yield HERE.parent / f"{name}.json", written(importlib.import_module(module).board().json()) + "\n"


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    differ = [(path, text) for path, text in boards() if not path.exists() or path.read_text() != text]
    for path, text in differ:
        if arguments:
            print(f"{path} differs from its source: run dashboards/source/make.py")
        else:
            path.write_text(text)
    return 1 if arguments and differ else 0


if __name__ == "__main__":
    sys.exit(main())
