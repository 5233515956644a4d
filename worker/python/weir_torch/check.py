# SPDX-License-Identifier: Apache-2.0
"""Shows that the layers of a Hugging Face model give the bits of the whole model, on a small copy of it, before training begins."""
import torch
import torch.nn.functional as F

from weir_torch.decompose import Decomposition, first
from weir_torch.errors import Refused

SAMPLES, TOKENS = 2, 24
LARGEST = 256 << 20   # bytes of a copy with the real widths, where a smaller one cannot be made


def loss_sum(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="sum")


def run(layers, x, targets, scale):
    """Forward and backward layer by layer, as the engine does; returns every layer's output."""
    inputs, outputs, gradient = [], [], torch.tensor(scale)
    for _, function, _ in layers:
        inputs.append(x.detach().requires_grad_() if x.is_floating_point() else x)
        outputs.append(x := function(inputs[-1]))
    for x, y in zip(reversed(inputs), [loss_sum(x, targets), *reversed(outputs[:-1])]):
        y.backward(gradient)
        gradient = x.grad
    return [y.detach() for y in outputs]


def same(a, b):
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return type(a) is type(b) and torch.equal(a, b)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, (tuple, list)) else a is b or a == b


def check(model, layers=Decomposition.layers):
    """Refuses the model unless its layers give the bits of the whole: all outputs, logits and gradients. Returns their number."""
    parts, table = Decomposition(model.train()), model.get_input_embeddings()
    parts.parameters()
    with torch.no_grad():
        notes = [parts.around(torch.randn(SAMPLES, TOKENS, table.embedding_dim))[1] for _ in range(2)]
    for i, (a, b) in enumerate(zip(*notes)):
        for name in (name for name in a[1] if not same(a[1][name], b[1].get(name))):
            raise Refused(f"argument {name} of block{i} depends on the data")
    ids = torch.randint(0, table.num_embeddings, (SAMPLES, TOKENS + 1))
    x, targets, scale, wanted = ids[:, :-1], ids[:, 1:], 1.0 / ids.numel(), []
    hooks = [b.register_forward_hook(lambda m, a, y: wanted.append(first(y).detach())) for b in parts.blocks]
    torch.manual_seed(1)   # whole and parts draw random numbers in the same order, so dropout is compared, too
    whole = model(input_ids=x, use_cache=False).logits
    loss_sum(whole, targets).backward(torch.tensor(scale))
    gradients = {n: p.grad for n, p in model.named_parameters()}
    for hook in hooks:
        hook.remove()
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    made = layers(parts)
    outputs = zip(made[1:], run(made, x, targets, scale)[1:], [*wanted, whole.detach()])
    for name in (layer[0] for layer, y, z in outputs if not same(y, z)):
        raise Refused(f"the output of {name} differs from that of the whole model")
    for name in (n for n, p in model.named_parameters() if not same(gradients[n], p.grad)):
        raise Refused(f"the gradient of {name} differs from that of the whole model")
    return len(made)


def shrunk(config):
    """The same classes with few and small blocks: at most 4, one of each type."""
    d, blocks, heads = config.to_dict(), config.num_hidden_layers, config.num_attention_heads
    types = getattr(config, "layer_types", None) or [""] * blocks
    keep = sorted({types.index(t) for t in types} | set(range(min(4, blocks))))
    keep = sorted({*keep[:1], *keep[-3:]})
    kv, latent = getattr(config, "num_key_value_heads", None) or heads, "kv_lora_rank" in d   # latent attention has no groups
    groups, wide = min(kv, 2), min(kv, 2) * (heads // kv)
    sizes = dict(num_hidden_layers=len(keep), num_attention_heads=wide, num_key_value_heads=wide if latent else groups,
                 head_dim=8 if latent else 16, hidden_size=16 * wide, intermediate_size=32 * wide, vocab_size=128,
                 moe_intermediate_size=32, n_group=1, topk_group=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
                 qk_nope_head_dim=16, v_head_dim=16, first_k_dense_replace=1, sliding_window=8)
    most = dict(num_local_experts=4, n_routed_experts=4, num_experts=4, num_experts_per_tok=2)
    names = {own: general for general, own in getattr(config, "attribute_map", {}).items()}
    for key, value in d.items():
        name = names.get(key, key)
        if isinstance(value, list) and len(value) == blocks:
            d[key] = [value[i] for i in keep]
        elif name in sizes and (value is not None or name == "head_dim"):
            d[key] = sizes[name]
        elif value is not None and (name in most or key.endswith("_token_id")):
            d[key] = min(value, most[name]) if name in most else 0
    return type(config).from_dict({**d, "tie_word_embeddings": False})


def small_copy(config, make):
    """A model to check: a shrunk one, or where none can be made two blocks of the real widths. make(config) builds a model."""
    try:
        return make(shrunk(config))
    except Refused:
        raise
    except Exception as error:   # of the family's code: sizes that it does not take
        two = type(config).from_dict({**config.to_dict(), "num_hidden_layers": 2, "tie_word_embeddings": False})
        with torch.device("meta"):
            size = sum(4 * p.numel() for p in make(two).parameters())
        if size > LARGEST:
            raise Refused(f"no small copy of {type(config).__name__} can be made ({error}); --check-config=FILE names a small config.json of it") from error
        return make(two)
