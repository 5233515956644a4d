#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The structs of weir_torch.abi are those of weir_layers.h: sizes and places of all fields, as a C compiler sees them. Needs no torch."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "worker/python"))
from weir_torch import abi   # noqa: E402  pylint: disable=wrong-import-position


class Abi(unittest.TestCase):
    def test_structs_are_those_of_the_header(self):
        lines = []
        for name, struct in abi.STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));' for field, _ in struct._fields_]
        source = '#include "weir_layers.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "sizes")
            subprocess.run(["gcc", "-std=c11", "-x", "c", "-", "-I", str(ROOT / "worker/stage/foreign"), "-o", str(program)], input=source, text=True, check=True)
            found = subprocess.run([str(program)], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")

        wanted = []
        for name, struct in abi.STRUCTS.items():
            wanted.append(f"{name} {abi.ctypes.sizeof(struct)}")
            wanted += [f"{name}.{field} {getattr(struct, field).offset}" for field, _ in struct._fields_]
        self.assertEqual(found[:-1], wanted)

    def test_constants_are_those_of_the_header(self):
        header = (ROOT / "worker/stage/foreign/weir_layers.h").read_text()
        for text in (f"WEIR_LAYERS_VERSION = {abi.VERSION}", f"WEIR_F32 = {abi.F32}", f"WEIR_BF16 = {abi.BF16}",
                     f"WEIR_OK = {abi.OK}, WEIR_FAILED = {abi.FAILED}, WEIR_NO_MEMORY = {abi.NO_MEMORY}"):
            self.assertIn(text, header)


class Host:
    """Functions that fail in the ways that Python has."""
    trouble = None

    def __init__(self, error):
        self.error = error

    def line_of(self, error):
        return f"{type(error).__name__}: {error}"

    def fails(self, *_):
        raise self.error

    describe = bind = initial = forward = backward = drop = unbind = trim = notice = fails


class Callbacks(unittest.TestCase):
    def test_no_exception_leaves_a_function(self):
        for error in (RuntimeError("no luck"), SystemExit(3), KeyboardInterrupt()):
            with self.subTest(type(error).__name__):
                table = abi.Table(Host(error))
                with self.quiet():
                    self.assertEqual(table.layers.forward(None, 1, abi.Forward()), abi.FAILED)
                    self.assertEqual(table.layers.initial(None, 1, 0, None, 0), abi.FAILED)
                self.assertEqual(abi.ctypes.string_at(table.layers.error(None)).decode(), f"{type(error).__name__}: {error}")

    def test_no_memory_has_a_status_of_its_own(self):
        table = abi.Table(Host(MemoryError()))
        with self.quiet():
            self.assertEqual(table.layers.backward(None, 1, abi.Backward()), abi.NO_MEMORY)

    def test_what_cannot_be_returned_is_told_later(self):
        host = Host(RuntimeError("a view"))
        abi.Table(host).layers.drop(None, 1, 7)
        self.assertEqual(str(host.trouble), "a view")

    @staticmethod
    def quiet():
        import contextlib   # pylint: disable=import-outside-toplevel
        import io   # pylint: disable=import-outside-toplevel
        return contextlib.redirect_stderr(io.StringIO())


if __name__ == "__main__":
    unittest.main()
