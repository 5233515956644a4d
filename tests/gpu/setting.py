# SPDX-License-Identifier: Apache-2.0
"""What the parts of tests/gpu/report share: the table, the worker with its libraries, the sizes, the time that is left."""
import ctypes
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pipeline

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent   # of the repository, unless the report is packed: then there may be no folder above
PACKED = HERE / "bin" / "weir-worker"  # where tests/gpu/pack puts it
PART_LIMIT = 600  # seconds


class Report:
    def __init__(self):
        self.rows, self.failed = [], False

    def add(self, verdict, part, what, value, target=""):
        self.failed |= verdict == "FAIL"
        self.rows.append((part, what, value, target, verdict))
        print(f"{verdict} {part}: {what}: {value}" + (f" (target {target})" if target else ""), flush=True)

    def judge(self, good, part, what, value, target):
        self.add("PASS" if good else "FAIL", part, what, value, target)

    def table(self):
        return "| Part | What | Measured | Target | |\n|---|---|---|---|---|\n" + "".join("| " + " | ".join(row) + " |\n" for row in self.rows)


class Setting:
    """The worker, the device and the sizes; tiny ones in a rehearsal."""

    def __init__(self, worker, rehearse, text=None):
        self.worker, self.rehearse, self.text = worker, rehearse, text
        self.gpu_tests = HERE / "bin" / "gpu_tests" if worker == PACKED else worker.parents[2] / "tests" / "gpu" / "gpu_tests"
        self.device = "cpu" if rehearse else "cuda"
        self.libraries = loader_environment(worker)
        self.end = 0.0

    def left(self):
        return max(1.0, self.end - time.monotonic())

    def train(self, arguments, device=None, environment=None, limit=PART_LIMIT, **more):
        """device: None, the one under test. environment, of_worker: of worker i; of_worker then names its device."""
        words = [] if "of_worker" in more else [f"--device={device or self.device}"]
        return pipeline.train(self.worker, [*words, *arguments], limit=min(limit, self.left()),
                              environment=lambda i: {**self.libraries, **(environment(i) if environment else {})}, **more)

    def run_tests(self, *words, before=(), limit=PART_LIMIT):
        """gpu_tests with these arguments, after the words of a tool."""
        return subprocess.run([*before, self.gpu_tests, *words], capture_output=True, text=True, timeout=min(limit, self.left()), check=False,
                              env={**os.environ, **self.libraries})

    def small(self, steps):
        model = "gpt-tiny" if self.rehearse else "gpt-mini"
        return [f"--model={model}", "--seq=32" if self.rehearse else "--seq=256", "--lr=1e-3", f"--steps={steps}"]

    def text_file(self, folder):
        """Real text: the file that the user named, or the reference that comes with Python (English, 0.5 MB)."""
        if self.text:
            return self.text
        import pydoc_data.topics
        file = pathlib.Path(folder) / "text"
        file.write_text("\n".join(pydoc_data.topics.topics.values()), encoding="utf-8")
        return file


def library_versions(setting):
    """Of NCCL and cuBLASLt as the worker gets them."""
    told = subprocess.run([setting.worker], env={**os.environ, **setting.libraries, "LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True,
                          text=True, check=False)
    paths = {words[0]: words[2] for words in map(str.split, told.stdout.splitlines()) if len(words) > 2 and words[1] == "=>"}
    found = []
    for name, path in paths.items():
        if name.startswith("libnccl."):
            version = ctypes.c_int(0)
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
            found.append(f"NCCL {version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}")
        if name.startswith("libcublasLt."):
            get = ctypes.CDLL(path).cublasLtGetVersion
            get.restype = ctypes.c_size_t
            found.append(f"cuBLASLt {get()}")
    return ", ".join(found)


def gpu_name():
    if shutil.which("nvidia-smi") is None:
        return "unknown GPU"
    told = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                          text=True, check=False)
    return told.stdout.strip().splitlines()[0] if told.returncode == 0 and told.stdout.strip() else "unknown GPU"


def torch_python():
    return os.environ.get("WEIR_TORCH_PYTHON", "python3")


def loader_environment(program):
    """Where the loader finds all libraries of a program: as it does anyway, in lib/ beside a packed report, in the wheels of
    NVIDIA that came with PyTorch, in CUDA's folder. Ends with the names of those that are nowhere."""
    folders = [str(HERE / "lib")] if program == PACKED else []
    if not (missing := missing_libraries(program, folders)):
        return loader_path(folders)
    places = wheel_folders() + ["/usr/local/cuda/lib64"]
    for name in missing:
        found = next((place for place in places if (pathlib.Path(place) / name).exists()), None)
        if found and found not in folders:
            folders.append(found)
    if missing := missing_libraries(program, folders):
        sys.exit(f"tests/gpu/report: {' and '.join(missing)} found neither by the loader nor in nvidia/*/lib of {torch_python()}: "
                 "install PyTorch with CUDA 13 (or nvidia-cublas and nvidia-nccl-cu13) there, name a Python that has it in "
                 "WEIR_TORCH_PYTHON, or set LD_LIBRARY_PATH")
    return loader_path(folders)


def loader_path(folders):
    words = [*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(words)} if words else {}


def missing_libraries(program, folders):
    told = subprocess.run([program], env={**os.environ, **loader_path(folders), "LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True,
                          text=True, check=False)
    if told.returncode != 0:
        sys.exit(f"tests/gpu/report: {program} cannot run here: {(told.stderr.strip().splitlines() or ['no reason given'])[0]}")
    return [line.split()[0] for line in told.stdout.splitlines() if line.endswith("not found")]


def wheel_folders():
    folders = []
    for python in dict.fromkeys([torch_python(), sys.executable]):
        if shutil.which(python) is None:
            continue
        told = subprocess.run([python, "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True, text=True, check=False)
        for place in filter(None, told.stdout.splitlines()):
            folders += sorted(glob.glob(glob.escape(place) + "/nvidia/*/lib"))
    return folders


def built_worker():
    if PACKED.exists():
        return PACKED
    for words in (["cmake", "--preset", "cuda"], ["cmake", "--build", "--preset", "cuda", "--target", "weir-worker", "gpu_tests"]):
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit("tests/gpu/report: " + " ".join(words) + " failed: " + "".join(done.stderr.splitlines(True)[-3:]))
    return ROOT / "build" / "cuda" / "worker" / "app" / "weir-worker"


NO_GPU = ("no CUDA device", "the driver supports CUDA")   # as worker/device/cuda/cuda_device.cpp says it
CONFIGURATION = 2                                         # exit code of a worker that cannot begin
FIRST_STEP_LIMIT = 120                                    # seconds


def first_step(setting):
    """("", "") when one step of mlp can be trained on the GPU; (reason, "") when there is no GPU; ("", failure) when there is one
    that fails, which the parts then look into."""
    command = [setting.worker, "--device=cuda", "--model=mlp", "--steps=1", "--log-format=text"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=FIRST_STEP_LIMIT, check=False,
                               env={**os.environ, **setting.libraries})
    except subprocess.TimeoutExpired as problem:
        pipeline.keep_text("first-step", str(problem.stderr or ""))
        return "", f"no end after {FIRST_STEP_LIMIT} s"
    pipeline.keep_text("first-step", tried.stderr)
    if tried.returncode == 0:
        return "", ""
    line = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    if tried.returncode == CONFIGURATION and any(text in line for text in NO_GPU):
        return line, ""
    return "", f"exit code {tried.returncode}: {line}"


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="weir-gpu-")
