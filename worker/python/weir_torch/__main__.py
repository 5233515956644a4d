# SPDX-License-Identifier: Apache-2.0
"""weir-torch: weir-worker with layers of torch; --describe prints them and trains nothing."""
import argparse
import atexit
import faulthandler
import json
import os
import signal
import sys

CONFIGURATION, TERMINATED = 2, 143
NAME = "weir-torch"
LIBRARY = "libweir-worker.so"


def library():
    """Beside this file in an installed package; WEIR_LIBRARY names another one."""
    return os.environ.get("WEIR_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY)


def own_options():
    """Those that only this program has; the rest are weir-worker's."""
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    group = parser.add_argument_group("Layers of torch", "--model=FILE.py: a file with a function layers(config); --model=hf:DIR: a folder of Hugging Face")
    group.add_argument("--describe", action="store_true", help="print the layers of --model, what they keep and need, and end")
    group.add_argument("--init", choices=["folder", "random"], help="initial values of --model=hf:DIR; unset: those of the folder, if it has any")
    group.add_argument("--untie", action="store_true", help="train a copy of a tied table")
    group.add_argument("--check-config", metavar="FILE", help="config.json of a small model of the same family, to check its layers with")
    return parser


def shared_options():
    """Options of weir-worker that this program reads, too."""
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, allow_abbrev=False)
    parser.add_argument("--model", default="")
    parser.add_argument("--model-option", action="append", default=[])
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=os.environ.get("WEIR_THREADS") or len(os.sched_getaffinity(0)))
    return parser


def option_of(text):
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def vocabulary_of(model, options):
    """Of a Hugging Face folder; None where it is not to be seen without the code of its family."""
    if not model.startswith("hf:"):
        return None
    try:
        with open(os.path.join(model[len("hf:"):], "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return None
    return options.get("vocab_size") or config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")


def fail(why):
    print(f"{NAME}: {why}", file=sys.stderr)
    path = os.environ.get("WEIR_TERMINATION_LOG") or "/dev/termination-log"
    if os.path.exists(path) or "WEIR_TERMINATION_LOG" in os.environ:
        with open(path, "w", encoding="utf-8") as file:
            file.write(why[:1024])
    return CONFIGURATION


def imports():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch   # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    import multiprocessing   # pylint: disable=import-outside-toplevel
    multiprocessing.set_start_method("spawn", force=True)   # a fork would copy sockets and threads


def size_text(size):
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000


def print_description(of):
    layers = of["layers"]
    count = [sum(product(p["shape"]) for p in layer["parameters"]) for layer in layers]
    shared = sum(product(p["shape"]) for layer in layers for p in layer["parameters"] if "tiedTo" in p)   # a table that counts once
    frozen = sum(product(p["shape"]) for layer in layers for p in layer["parameters"] if not p["trainable"])
    print(f"{of['name']}, {len(layers)} layers, {(sum(count) - shared) / 1e6:.1f} M parameters" + (f", {frozen / 1e6:.1f} M of them frozen" if frozen else "") +
          f", {of['engine']}" + (f"; {of['note']}" if of["note"] else ""))
    print(f"{'layer':16s} {'kind':20s} {'parameters':>12s} {'kept a sample':>14s} {'needed a sample':>16s}")
    for layer, parameters in zip(layers, count):
        kept, needed = (size_text(layer[key]) for key in ("stashBytesPerSample", "transientBytesPerSample"))
        print(f"{layer['id']:16s} {layer['kind']:20s} {parameters:12d} {kept:>14s} {needed:>16s}")


def product(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def describe(given):
    from weir_torch import table   # pylint: disable=import-outside-toplevel
    from weir_torch.errors import one_line   # pylint: disable=import-outside-toplevel
    from weir_torch.part import Settings   # pylint: disable=import-outside-toplevel
    options = dict(map(option_of, given.model_option))
    table.prepare_torch(given.threads)
    try:
        model = table.open_model(Settings(model=given.model, options=options, sequence=given.seq, vocabulary=given.vocab or 256,
                                          precision=given.precision, seed=given.seed, threads=given.threads))
    except Exception as error:   # of the model's code: its line is what the user needs
        return fail(f"--model: {one_line(error, os.path.dirname(os.path.abspath(given.model)))}")
    print_description(table.describe(model))
    return 0


def train(words):
    from weir_torch import abi   # pylint: disable=import-outside-toplevel
    from weir_torch.table import Host   # pylint: disable=import-outside-toplevel
    table = abi.Table(Host())
    globals()["table"] = table   # C holds pointers to it until the process ends
    return abi.worker_main(library(), [NAME, *words], table)


def print_help():
    """weir-worker's table with this program's options first; torch is not needed for it."""
    own_options().print_help()
    sys.stdout.flush()
    from weir_torch import abi   # pylint: disable=import-outside-toplevel
    return abi.worker_main(library(), [NAME, "--help"], globals().setdefault("table", abi.Table(NoLayers())))


class NoLayers:
    """For --help, which calls none of them."""
    def __getattr__(self, name):
        return None


def run(argv):
    if "-h" in argv or "--help" in argv:
        return print_help()
    own, words = own_options().parse_known_args(argv)
    given, _ = shared_options().parse_known_args(words)
    mine = [f"{key}={json.dumps(value)}" for key, value in (("init", own.init), ("untie", own.untie), ("check_config", own.check_config)) if value]
    words += [f"--model-option={option}" for option in mine]
    given.model_option += mine
    if given.vocab is None:
        given.vocab = vocabulary_of(given.model, dict(map(option_of, given.model_option)))
        words += [f"--vocab={given.vocab}"] if given.vocab else []
    if given.device != "cpu":
        return fail(f"--device={given.device}: this weir_torch was built without CUDA")
    try:
        imports()
    except ImportError as error:
        return fail(f"weir-torch needs torch in this image: {error}")
    return describe(given) if own.describe else train(words)


def main():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))   # the first process of a container ignores it otherwise
    faulthandler.enable()
    try:
        code = run(sys.argv[1:])
    except OSError as error:   # of the library: its path, or a version of glibc
        code = fail(str(error))
    # Neither the interpreter nor torch is torn down under threads that still serve /metrics.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
