# SPDX-License-Identifier: Apache-2.0
"""weir_layers.h for Python: its structs and its table of functions by ctypes.

No exception leaves a callback: C would read garbage in the place of a status. ctypes frees callbacks that only C holds, so the table
that make_table returns must live as long as the process.
"""
import ctypes
import traceback
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from weir_torch.errors import is_out_of_memory

VERSION = 1
F32, BF16 = 0, 1
OK, FAILED, NO_MEMORY = 1, 2, 3
LONGEST_ERROR = 4000


class Settings(Structure):
    _fields_ = [("size", c_uint32), ("version", c_uint32), ("sequence", c_int32), ("vocabulary", c_int32), ("precision", c_int32), ("threads", c_int32),
                ("device", c_int32), ("training", c_int32), ("seed", c_uint64), ("stream", c_void_p), ("model", c_char_p), ("options", c_char_p)]


class Parameter(Structure):
    _fields_ = [("value", c_void_p), ("gradient", c_void_p), ("count", c_uint64)]


class Forward(Structure):
    _fields_ = [("size", c_uint32), ("samples", c_int32), ("step", c_int64), ("seed", c_uint64), ("ticket", c_uint64), ("training", c_int32),
                ("loss_scale", c_float), ("inputs", c_void_p), ("targets", c_void_p), ("input", c_void_p), ("input_bytes", c_uint64),
                ("output", c_void_p), ("output_bytes", c_uint64), ("loss", c_void_p)]


class Backward(Structure):
    _fields_ = [("size", c_uint32), ("samples", c_int32), ("ticket", c_uint64), ("output_gradient", c_void_p), ("output_gradient_bytes", c_uint64),
                ("input_gradient", c_void_p), ("input_gradient_bytes", c_uint64)]


class Layers(Structure):
    _fields_ = [("size", c_uint32), ("version", c_uint32), ("self", c_void_p),
                ("describe", CFUNCTYPE(c_int32, c_void_p, POINTER(Settings), POINTER(c_void_p))),
                ("bind", CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(Parameter), c_uint32, POINTER(c_void_p))),
                ("initial", CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint32, c_void_p, c_uint64)),
                ("forward", CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(Forward))),
                ("backward", CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(Backward))),
                ("drop", CFUNCTYPE(None, c_void_p, c_void_p, c_uint64)),
                ("unbind", CFUNCTYPE(None, c_void_p, c_void_p)),
                ("error", CFUNCTYPE(c_void_p, c_void_p)),
                ("memory", CFUNCTYPE(c_uint64, c_void_p)),
                ("trim", CFUNCTYPE(None, c_void_p)),
                ("notice", CFUNCTYPE(None, c_void_p, c_char_p))]


STRUCTS = {"weir_settings": Settings, "weir_parameter": Parameter, "weir_forward": Forward, "weir_backward": Backward, "weir_layers": Layers}


class Table:
    """The C functions over a host (table.Host): its methods raise, the functions return a status and keep the line."""

    def __init__(self, host):
        self.host = host
        self.words = ctypes.create_string_buffer(b"")
        self.json = ctypes.create_string_buffer(b"")
        kinds = dict(Layers._fields_)
        functions = {"describe": self.returns(self.describe), "bind": self.returns(self.bind), "initial": self.returns(host.initial),
                     "forward": self.returns(lambda bound, of: host.forward(bound, of[0])),
                     "backward": self.returns(lambda bound, of: host.backward(bound, of[0])),
                     "drop": self.tells(host.drop), "unbind": self.tells(host.unbind), "trim": self.tells(host.trim),
                     "notice": self.tells(host.notice), "error": lambda _: ctypes.addressof(self.words)}
        self.layers = Layers(size=ctypes.sizeof(Layers), version=VERSION, **{name: kinds[name](function) for name, function in functions.items()})

    def failed(self, error):
        traceback.print_exception(error)   # with the model's lines, for the log
        line = self.host.line_of(error).encode(errors="replace")[:LONGEST_ERROR]
        self.words = ctypes.create_string_buffer(line)
        return NO_MEMORY if is_out_of_memory(error) else FAILED

    def returns(self, function):
        def call(_, *args):
            try:
                function(*args)
                return OK
            except BaseException as error:   # SystemExit and KeyboardInterrupt, too
                return self.failed(error)
        return call

    def tells(self, function):
        def call(_, *args):
            try:
                function(*args)
            except BaseException as error:   # the next call that can fail tells it
                self.host.trouble = self.host.trouble or error
        return call

    def describe(self, settings, json):
        self.json = ctypes.create_string_buffer(self.host.describe(settings[0]).encode())
        json[0] = ctypes.addressof(self.json)

    def bind(self, layer, parameters, count, bound):
        bound[0] = self.host.bind(layer, [parameters[i] for i in range(count)])


def worker_main(library, arguments, table):
    """Loads the worker and runs it on this thread; the exit code. arguments: the program's name first."""
    run = ctypes.CDLL(library).weir_worker_main
    run.restype, run.argtypes = c_int32, [c_int32, POINTER(c_char_p), POINTER(Layers)]
    words = (c_char_p * (len(arguments) + 1))(*[word.encode() for word in arguments], None)
    return run(len(arguments), words, ctypes.byref(table.layers))
