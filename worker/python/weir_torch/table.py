# SPDX-License-Identifier: Apache-2.0
"""The layers of a model behind Weir's table of functions (abi.Table): each is its own autograd graph between memory that is Weir's."""
import ctypes
import gc
import json
from dataclasses import dataclass

import torch

from weir_torch import abi
from weir_torch.errors import Refused, one_line
from weir_torch.footprint import end_of
from weir_torch.part import Settings
from weir_torch.views import Bound, tensor_at, tokens_at


def prepare_torch(threads, deterministic=True):
    torch.set_num_threads(threads)
    try:
        torch.set_num_interop_threads(1)
    except RuntimeError:   # only before torch has computed in parallel
        pass
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False   # it takes time and changes nothing here


def open_model(settings):
    """The model that --model names."""
    if settings.model.startswith("hf:"):
        from weir_torch.hugging_face import FolderModel   # pylint: disable=import-outside-toplevel
        return FolderModel(settings.model[len("hf:"):], settings)
    if settings.model.endswith(".py"):
        from weir_torch.own import OwnModel   # pylint: disable=import-outside-toplevel
        return OwnModel(settings.model, settings)
    raise Refused(f"{settings.model or 'not set'}: must be hf:DIR, a Hugging Face folder, or FILE.py")


def describe(model):
    text = {"name": model.name, "engine": model.engine, "source": model.source, "vocabulary": model.settings.vocabulary, "note": model.note,
            "layers": [part.as_json() for part in model.parts]}
    export = model.export()
    return text if export is None else {**text, "export": export}


@dataclass
class Kept:
    """A pass between forward and backward."""
    end: object          # where the backward begins; None: nothing to do
    x: torch.Tensor      # a view of Weir's memory; None for the first layer
    alive: object        # weak reference to that memory
    samples: int
    loss_scale: float


class BoundLayer:
    def __init__(self, host, part, parameters):
        part.ready()
        self.host, self.part, self.kept, self.values = host, part, {}, None
        self.dtype, self.sequence = host.model.settings.dtype, host.model.settings.sequence
        self.bound = Bound(part.places, [p.value for p in parameters], [p.gradient for p in parameters], self.dtype)
        part.bound_count += 1

    def initial(self, index, values, count):
        if self.values is None:
            self.values = [v.to(torch.float32) for v in self.part.initial_values()]
        tensor_at(values, (count,), torch.float32)[0].copy_(self.values[index].flatten())
        if index + 1 == len(self.values):
            self.values = None

    def forward(self, of):
        part, samples, keep = self.part, of.samples, of.ticket != 0
        part.use(self.bound, bool(of.training))
        torch.default_generator.manual_seed(of.seed)
        x, alive = None, None
        if of.input:
            x, alive = tensor_at(of.input, (samples, *part.input_shape), self.dtype)
            x.requires_grad_(keep)
        tokens = tokens_at(of.inputs, samples, self.sequence) if part.needs_inputs else None
        with torch.set_grad_enabled(keep):
            y = part.run(x, tokens)
            if part.last:
                y = self.host.model.loss(y, tokens_at(of.targets, samples, self.sequence))
        if part.last:
            if of.loss:
                ctypes.c_double.from_address(of.loss).value = y.item()
        else:
            wanted = (samples, *part.output_shape)
            if tuple(y.shape) != wanted or y.dtype != self.dtype:
                raise Refused(f"returns {str(y.dtype)[6:]} {tuple(y.shape)}, at the start it was {str(self.dtype)[6:]} {wanted}")
            tensor_at(of.output, wanted, self.dtype)[0].copy_(y.detach())
        if keep:
            self.kept[of.ticket] = Kept(end_of(y), x, alive, samples, of.loss_scale)
        else:
            x, y = None, None
            self.look_for_views(alive)

    def backward(self, of):
        part, kept = self.part, self.kept[of.ticket]
        if kept.end is not None:
            if part.last:
                gradient = torch.tensor(kept.loss_scale)
            else:
                gradient = tensor_at(of.output_gradient, (kept.samples, *part.output_shape), self.dtype)[0]
            torch.autograd.backward(kept.end, gradient)
            kept.end = None
        if of.input_gradient:
            to = tensor_at(of.input_gradient, (kept.samples, *part.input_shape), self.dtype)[0]
            if kept.x.grad is None:
                to.zero_()
            else:
                to.copy_(kept.x.grad)
                kept.x.grad = None
        wrong = self.bound.misplaced()
        if wrong is not None:
            raise Refused(f"parameter {part.parameters[wrong][0]} has another tensor as gradient than Weir's")

    def drop(self, ticket):
        self.look_for_views(self.kept.pop(ticket).alive)

    def look_for_views(self, alive):
        """Weir uses the memory of the input for something else now."""
        if alive is None or alive() is None:
            return
        gc.collect()   # cycles keep graphs alive
        if alive() is not None:
            raise Refused(f"layer {self.part.id} ({self.part.description}) keeps a view of its input after its pass")


class Host:
    """What the functions of abi.Table do. They come from one thread, one at a time."""

    def __init__(self):
        self.model, self.bound, self.number, self.trouble, self.begun = None, {}, 0, None, False

    def line_of(self, error):
        return one_line(error, getattr(self.model, "folder", ""))

    def check(self):
        """What went wrong in a call that could not say so."""
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble

    def describe(self, given):
        options = json.loads(given.options.decode())
        settings = Settings(model=given.model.decode(), options=options, sequence=given.sequence, vocabulary=given.vocabulary,
                            precision="bf16" if given.precision == abi.BF16 else "fp32", seed=given.seed, threads=given.threads)
        prepare_torch(settings.threads, options.get("deterministic", True) is not False)
        self.model = open_model(settings)
        return json.dumps(describe(self.model))

    def bind(self, index, parameters):
        self.check()
        self.number += 1
        self.bound[self.number] = BoundLayer(self, self.model.parts[index], parameters)
        return self.number

    def initial(self, bound, parameter, values, count):
        self.bound[bound].initial(parameter, values, count)

    def forward(self, bound, of):
        self.check()
        if not self.begun:
            self.begun = True
            self.model.begin()
        self.bound[bound].forward(of)

    def backward(self, bound, of):
        self.check()
        self.bound[bound].backward(of)

    def drop(self, bound, ticket):
        self.bound[bound].drop(ticket)

    def unbind(self, bound):
        gone = self.bound.pop(bound)
        part = gone.part
        part.bound_count -= 1
        if part.installed is gone.bound:
            part.uninstall()
        if part.bound_count == 0:
            part.release()

    def trim(self):
        gc.collect()

    def notice(self, text):
        of = json.loads(text.decode())
        if of.get("event") == "step" and self.model.on_step is not None:
            self.model.on_step(of)
