# SPDX-License-Identifier: Apache-2.0
"""--model=hf:DIR: a folder with config.json and, for initial values, safetensors."""
import json
import os
from contextlib import nullcontext

import torch

from weir_torch.check import check, loss_sum, small_copy
from weir_torch.decompose import Decomposition
from weir_torch.errors import Refused, is_out_of_memory, one_line
from weir_torch.footprint import SAMPLES, lines, measured
from weir_torch.part import Part, mixed
from weir_torch.views import own_memory, parameters_on_meta, places_of

OURS = {"init", "untie", "check_config", "deterministic"}   # options that are no keys of config.json


def imported():
    try:
        import transformers   # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise Refused(f"--model=hf: needs transformers in this image: {error}") from None
    transformers.logging.set_verbosity_error()
    return transformers


def config_of(path, changed):
    """A config.json with changed keys, as the class of its family."""
    folder = os.path.dirname(path) or "."
    if not os.path.isfile(path):
        raise Refused(f"{folder} has no {os.path.basename(path)}")
    with open(path, encoding="utf-8") as file:
        text = json.load(file)
    if "auto_map" in text:
        raise Refused("config.json has auto_map (trust_remote_code); put the code into a model.py")
    if text.get("quantization_config"):
        raise Refused("config.json has quantization_config; train a copy whose weights are not quantized")
    try:
        config = imported().AutoConfig.for_model(**{**text, **changed})
    except (KeyError, ValueError, TypeError) as error:
        raise Refused(f"config.json of {folder}: {one_line(error)}") from error
    known = type(config)()   # with all keys of the family; others would be taken without a word
    for key in (key for key in changed if key not in text and not hasattr(known, key)):
        raise Refused(f"--model-option: config.json of {folder} knows no {key}")
    return config


class Weights:
    """The tensors of a folder by their names in the model; one layer is read at a time."""

    def __init__(self, folder, model, twins):
        self.folder, self.files, self.twins = folder, {}, twins
        self.prefix = model.base_model_prefix + "."
        self.whole = None   # the model as transformers loads it, where names differ
        names = os.listdir(folder) if os.path.isdir(folder) else []
        single, index = "model.safetensors", "model.safetensors.index.json"
        if index in names:
            with open(os.path.join(folder, index), encoding="utf-8") as file:
                self.files = json.load(file)["weight_map"]
        elif single in names:
            with self.open(single) as file:
                self.files = dict.fromkeys(file.keys(), single)
        else:
            pickled = [name for name in names if name.startswith("pytorch_model") and name.endswith((".bin", ".index.json"))]
            if pickled:
                raise Refused(f"{folder} holds {pickled[0]} only; convert it to safetensors")

    def open(self, name):
        from safetensors import safe_open   # pylint: disable=import-outside-toplevel
        return safe_open(os.path.join(self.folder, name), framework="pt")

    def found(self):
        return bool(self.files)

    def read(self, name, shape):
        for of in (name, self.twins.get(name)):
            for key in (of, of and of.removeprefix(self.prefix), of and self.prefix + of):
                if key in self.files:
                    with self.open(self.files[key]) as file:
                        tensor = file.get_tensor(key).to(torch.float32)
                    if tensor.shape != shape:
                        raise Refused(f"{self.folder}: {key} has shape {list(tensor.shape)}, the config says {list(shape)}")
                    return tensor
        return self.converted(name, shape)

    def converted(self, name, shape):
        """Families whose files have other names than the model: transformers converts all of them at once."""
        if self.whole is None:
            model = imported().AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
            self.whole = dict(model.named_parameters())
        if name not in self.whole:
            raise Refused(f"{self.folder} has no tensor {name}")
        if self.whole[name].shape != shape:
            raise Refused(f"{self.folder}: {name} has shape {list(self.whole[name].shape)}, the config says {list(shape)}")
        return self.whole[name].detach()


class FolderPart(Part):
    """embed, a block or the head of one model, which all parts share."""

    def __init__(self, model, index, id_, function, modules):
        super().__init__(id=id_, places=places_of(modules))
        self.model, self.index, self.function, self.modules = model, index, function, modules

    def mode(self, training):
        whole = self.model.parts_of.model
        if whole.training != training:
            whole.train(training)

    def run(self, x, tokens):
        return self.function(tokens if x is None else x)

    def initial_values(self):
        """The family's own, under a seed that depends on the job's and the layer; then what the folder has."""
        weights = self.model.weights
        if weights is not None:
            return [weights.read(self.tied.get(name, name), torch.Size(shape)) for name, shape, _ in self.parameters]
        values = self.random_values()
        first = self.model.parts[0]
        for i, (name, *_) in enumerate(self.parameters):
            if name in self.tied:
                values[i] = first.random_values()[[n for n, *_ in first.parameters].index(self.tied[name])]
        return values

    def random_values(self):
        before = self.installed
        bound = own_memory(self.places, torch.float32)
        bound.install()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mixed(self.model.settings.seed, self.index))
            for module in self.modules:
                module.apply(self.model.parts_of.model._init_weights)
        self.uninstall()
        if before is not None:
            self.use(before, self.model.parts_of.model.training)
        return bound.memory[: len(self.places)]


class FolderModel:
    loss, on_step = staticmethod(loss_sum), None

    def __init__(self, folder, settings):
        transformers = imported()
        self.settings, self.folder, self.source = settings, "", folder
        self.engine = f"torch {torch.__version__}, transformers {transformers.__version__}"
        options = settings.options
        untie = bool(options.get("untie", False))
        changed = {key: value for key, value in options.items() if key not in OURS}
        if untie:
            changed["tie_word_embeddings"] = False
        config = config_of(os.path.join(folder, "config.json"), changed)
        if config.is_encoder_decoder:
            raise Refused(f"{(config.architectures or [type(config).__name__])[0]} is an encoder with a decoder")
        longest = getattr(config, "max_position_embeddings", None)
        if longest and settings.sequence > longest:
            raise Refused(f"--seq: {settings.sequence} is above max_position_embeddings {longest} of {folder}")
        self.checked(config, options)
        self.config = config
        self.parts_of = Decomposition(self.built(config, bare=True).train())
        self.name = type(self.parts_of.model).__name__
        size = self.parts_of.model.get_input_embeddings().num_embeddings
        if size != settings.vocabulary:
            raise Refused(f"--vocab: {settings.vocabulary}, the model of {folder} has {size} tokens")
        twins = self.twins()
        self.weights = self.weights_of(folder, options.get("init", ""), twins)
        self.parts = [FolderPart(self, i, *layer) for i, layer in enumerate(self.parts_of.layers())]
        self.describe_parts()

    def begin(self):
        """Training begins: initial values are not asked for any more."""
        if self.weights is not None:
            self.weights.whole = None

    def export(self):
        """What a folder that from_pretrained opens holds besides the tensors."""
        text = json.loads(self.config.to_json_string(use_diff=False))
        tied = sorted(self.parts[-1].tied)
        return {"config": {**text, "architectures": [self.name], "dtype": "float32"}, "folder": self.source, **({"tied": tied} if tied else {})}

    @staticmethod
    def built(config, bare):
        """A model of the family. bare: parameters have no memory, buffers are real."""
        with parameters_on_meta() if bare else nullcontext():
            try:
                return imported().AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            except ValueError as error:
                raise Refused(f"{type(config).__name__} is no causal language model of this transformers: {one_line(error)}") from error

    def checked(self, config, options):
        small = options.get("check_config")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            make = lambda c: self.built(c, bare=False)   # noqa: E731
            model = make(config_of(small, {"tie_word_embeddings": False})) if small else small_copy(config, make)
            check(model)
        self.note = "layers give the bits of the whole model"

    def twins(self):
        """{name of an output table: name of the input table} where the folder may have one of them only."""
        model = self.parts_of.model
        names = {p: n for n, p in model.named_parameters()}
        table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        return {names[head]: names[table]} if head in names and head is not table else {}

    def weights_of(self, folder, init, twins):
        if init not in ("", "folder", "random"):
            raise Refused(f"--init: must be folder or random, found {init}")
        if init == "random":
            return None
        weights = Weights(folder, self.parts_of.model, twins)
        if not weights.found() and init == "folder":
            raise Refused(f"--init=folder: {folder} holds no safetensors")
        return weights if weights.found() else None

    def describe_parts(self):
        owned, tied = self.parts_of.parameters()
        model, settings = self.parts_of.model, self.settings
        twins = {}   # {name of the owner's: name in the head}
        for layer, name in tied:
            twins[name] = next(n for n, p in model.named_parameters(remove_duplicate=False) if n != name and p is model.get_parameter(name))
            if layer != "head" or name not in owned["embed"]:
                raise Refused(f"model hf:{self.source} ties {twins[name]} to {name}, which are not the tables of its head and of its embedding")
        width, kinds = model.get_input_embeddings().embedding_dim, {}
        for part in self.parts:
            part.needs_inputs, part.last = part.index == 0, part.id == "head"
            part.input_shape = None if part.index == 0 else (settings.sequence, width)
            part.output_shape = () if part.last else (settings.sequence, width)
            names = {p: twins.get(n, n) if part.last else n for n, p in owned[part.id].items()}
            part.tied = {twin: name for name, twin in twins.items()} if part.last else {}
            part.parameters = [(names[p], list(p.shape), p.requires_grad) for p in part.places]
            part.description = type(part.modules[0]).__name__ if part.id.startswith("block") else part.id
            key = part.description, getattr(part.modules[0], "layer_type", self.type_of(part)), tuple(tuple(p.shape) for p in part.places)
            if key not in kinds:
                word = "block" if part.id.startswith("block") else part.id
                like = sum(kind.kind.split(".")[0] == word for kind in kinds.values())
                part.kind = word + (f".{like + 1}" if like else "")
                self.measure(part)
                kinds[key] = part
            part.kind, part.stash, part.transient = kinds[key].kind, kinds[key].stash, kinds[key].transient

    def type_of(self, part):
        """Blocks with a sliding window and with full attention are of different kinds."""
        types = getattr(self.parts_of.model.config, "layer_types", None) or []
        return types[part.index - 1] if part.id.startswith("block") and part.index <= len(types) else ""

    def measure(self, part):
        try:
            part.stash, part.transient = self.measured(part)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise Refused(f"layer {part.id} ({part.description}): {one_line(error)}") from error

    def measured(self, part):
        settings, passes = self.settings, []
        bound = own_memory(part.places, settings.dtype)
        part.use(bound, training=True)
        for samples in SAMPLES:
            tokens = torch.randint(0, settings.vocabulary, (samples, settings.sequence))
            x = None if part.index == 0 else torch.randn(samples, *part.input_shape).to(settings.dtype).requires_grad_()

            def forward():
                y = part.run(x, tokens.clone())   # noqa: B023
                return loss_sum(y, tokens.clone()) if part.last else y   # noqa: B023

            y = forward()   # notes the arguments of blocks, which all of them share
            gradient = torch.ones_like(y)
            del y
            shared = [t for t in torch.utils._pytree.tree_leaves(self.parts_of.arguments) if isinstance(t, torch.Tensor)]
            known = [*bound.tensors(), *shared, *self.parts_of.model.buffers(), *([] if x is None else [x])]
            passes.append(measured(forward, gradient, known))
        part.uninstall()
        return lines(passes)
