#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/report without a GPU: parts that fail or hang, and workers that cannot begin, cost no other part anything. And what
tests/gpu/ptxas reads from ptxas."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import tarfile
import tempfile
import time
import types
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pipeline  # noqa: E402
import setting  # noqa: E402
import single_parts  # noqa: E402


def program(name):
    loader = importlib.machinery.SourceFileLoader("gpu_" + name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_" + name, loader))
    loader.exec_module(module)
    return module


gpu_report, ptxas = program("report"), program("ptxas")


def broken(*_):
    raise pipeline.Broken("worker 1: cuBLASLt: not supported")


def surprised(*_):
    raise AttributeError("no such figure")


def hangs(*_):
    time.sleep(60)


def hangs_twice(*_):
    try:
        time.sleep(60)
    except gpu_report.Hangs:
        time.sleep(60)   # as subprocess.run waits for a process that cannot be killed


def works(report, _):
    report.judge(True, "works", "a figure", "1", "1")


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(setattr, pipeline, "kept", None)
        pipeline.kept = pathlib.Path(folder.name) / "keep"
        self.addCleanup(setattr, gpu_report, "PARTS", gpu_report.PARTS)
        self.addCleanup(setattr, gpu_report, "PART_LIMIT", gpu_report.PART_LIMIT)
        self.addCleanup(setattr, gpu_report, "HANG", gpu_report.HANG)
        gpu_report.PARTS = {"broken": broken, "surprised": surprised, "hangs": hangs, "hangs_twice": hangs_twice, "works": works}
        gpu_report.PART_LIMIT, gpu_report.HANG = 0.2, 0.1

    def test_every_part_behind_one_that_fails_or_hangs_runs_and_is_in_the_archive(self):
        report = setting.Report()
        gpu_report.run_parts(report, types.SimpleNamespace(end=0.0), gpu_report.PARTS, time.monotonic() + 100)

        verdicts = {row[0]: (row[4], row[2]) for row in report.rows if row[4] != "INFO"}
        self.assertEqual(verdicts["broken"], ("FAIL", "worker 1: cuBLASLt: not supported"))
        self.assertEqual(verdicts["surprised"], ("FAIL", "AttributeError('no such figure')"))
        self.assertEqual(verdicts["hangs"], ("FAIL", "it hangs"))
        self.assertEqual(verdicts["hangs_twice"], ("FAIL", "it hangs"))
        self.assertEqual(verdicts["works"][0], "PASS")
        with tarfile.open(pipeline.kept.with_name("keep.tgz")) as tar:
            table = tar.extractfile("keep/table.txt").read().decode()
        for part in gpu_report.PARTS:
            self.assertIn(f"| {part} | time of this part", table)

    def test_the_archive_is_whole_after_each_part(self):
        report = setting.Report()
        seen = []

        def looks(*_):
            with tarfile.open(pipeline.kept.with_name("keep.tgz")) as tar:
                seen.append(tar.extractfile("keep/table.txt").read().decode())

        gpu_report.PARTS = {"works": works, "looks": looks}
        gpu_report.run_parts(report, types.SimpleNamespace(end=0.0), gpu_report.PARTS, time.monotonic() + 100)
        self.assertIn("| works | a figure | 1 | 1 | PASS |", seen[0])
        self.assertFalse(report.failed)

    def test_parts_without_time_are_skipped_by_name(self):
        report = setting.Report()
        gpu_report.run_parts(report, types.SimpleNamespace(end=0.0), ["works"], time.monotonic() + 1)
        self.assertEqual([row[4] for row in report.rows], ["SKIP"])


class Ops(unittest.TestCase):
    """gpu_tests whose suites hang, as a GPU does that one kernel has spoilt."""

    def test_the_suites_that_tell_most_come_first_and_two_that_hang_end_the_part(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tests = pathlib.Path(folder.name) / "gpu_tests"
        tests.write_text("#!/bin/sh\n[ \"$1\" = --gtest_list_tests ] && printf 'A.\\n  One\\nB.\\n  One\\nOps/Twins.\\n  One/1\\n' && exit 0\nexec sleep 60\n")
        tests.chmod(0o755)
        self.addCleanup(setattr, single_parts, "SUITE_LIMIT", single_parts.SUITE_LIMIT)
        single_parts.SUITE_LIMIT = 0.2
        tried = setting.Setting.__new__(setting.Setting)
        tried.gpu_tests, tried.rehearse, tried.libraries, tried.end = tests, False, {}, time.monotonic() + 100
        report = setting.Report()

        single_parts.ops(report, tried)

        self.assertEqual([(row[1], row[4]) for row in report.rows], [("Ops/Twins", "FAIL"), ("A", "FAIL"), ("B", "SKIP")])


class Packed(unittest.TestCase):
    def test_a_folder_at_the_top_of_the_file_system_is_as_good_as_any(self):
        names = {"__file__": "/packed/setting.py", "__name__": "packed"}
        exec(compile((HERE / "setting.py").read_text(), "/packed/setting.py", "exec"), names)
        self.assertEqual(names["PACKED"], pathlib.Path("/packed/bin/weir-worker"))


class FirstStep(unittest.TestCase):
    def of(self, script):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        worker = pathlib.Path(folder.name) / "weir-worker"
        worker.write_text("#!/bin/sh\n" + script + "\n")
        worker.chmod(0o755)
        return setting.first_step(types.SimpleNamespace(worker=worker, libraries={}))

    def test_only_a_missing_gpu_is_no_gpu(self):
        self.assertEqual(self.of("exit 0"), ("", ""))
        self.assertEqual(self.of("echo 'no CUDA device: none is visible' >&2; exit 2"), ("no CUDA device: none is visible", ""))
        self.assertEqual(self.of("echo 'no CUDA device: none is visible' >&2; exit 1"), ("", "exit code 1: no CUDA device: none is visible"))
        self.assertEqual(self.of("echo 'cuBLASLt: not supported' >&2; exit 2"), ("", "exit code 2: cuBLASLt: not supported"))
        self.assertEqual(self.of("exit 139"), ("", "exit code 139: no reason given"))

    def test_a_worker_that_hangs_is_no_missing_gpu(self):
        self.addCleanup(setattr, setting, "FIRST_STEP_LIMIT", setting.FIRST_STEP_LIMIT)
        setting.FIRST_STEP_LIMIT = 0.2
        self.assertEqual(self.of("exec sleep 60"), ("", "no end after 0.2 s"))


class Ptxas(unittest.TestCase):
    TOLD = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1av' for 'sm_90'
ptxas info    : Function properties for _Z1av
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 25 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z1bv' for 'sm_90'
    40 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 2048 bytes smem
"""

    def test_registers_shared_memory_frame_and_spills_of_each_kernel(self):
        self.assertEqual(ptxas.kernels_of(self.TOLD), [("_Z1av", 25, 0, 0, 0), ("_Z1bv", 255, 2048, 40, 28)])

    def test_a_kernel_has_its_own_name_only(self):
        self.assertEqual(ptxas.short("void weir::stage::ops::(anonymous namespace)::map_kernel<8, weir::stage::ops::(anonymous namespace)"
                                     "::Gelu<weir::stage::ops::Bf16> >(unsigned long, float)"), "map_kernel")
        self.assertEqual(ptxas.short("weir::transport::nccl::add_segments(int)"), "add_segments")

    def test_warps_follow_from_registers(self):
        self.assertEqual([ptxas.warps(registers) for registers in (32, 33, 128, 255)], [64, 51, 16, 8])


if __name__ == "__main__":
    unittest.main()
