// SPDX-License-Identifier: Apache-2.0
// Every op of the built-in models, as data: an op can be run later or repeatedly, while what its
// pointers point to is valid.
#pragma once

#include <string>
#include <variant>

#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/block_codec.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/exact_sum.h"
#include "worker/stage/ops/gelu.h"
#include "worker/stage/ops/layernorm.h"
#include "worker/stage/ops/linear.h"
#include "worker/stage/ops/memory.h"
#include "worker/stage/ops/relu.h"
#include "worker/stage/ops/rms_norm.h"
#include "worker/stage/ops/rotary.h"
#include "worker/stage/ops/softmax_loss.h"
#include "worker/stage/ops/squares.h"
#include "worker/stage/ops/swiglu.h"

namespace weir::stage::ops {

using Op =
    std::variant<Zero, Copy, RoundValues, LinearForward, LinearBackwardParameters,
                 LinearBackwardInput, LayerNormForward, LayerNormApply, LayerNormBackward,
                 RmsNormForward, RmsNormApply, RmsNormBackward, Rotary, AttentionForward,
                 AttentionBackward, GeluForward, GeluBackward, SwigluForward, SwigluBackward,
                 ReluForward, ReluBackward, EmbeddingForward, EmbeddingBackward,
                 ContextEmbeddingForward, ContextEmbeddingBackward, SoftmaxLoss, AdamW, AddExactly,
                 RoundSums, JoinSums, SumSquares, EncodeBlocks, DecodeBlocks, SampleCodecError>;

// For messages, e.g. "GeluForward" or "LinearForward 768x3072".
std::string name_of(const Op& op);

// True if kind and fields are equal, bit for bit.
bool same(const Op& a, const Op& b);

}  // namespace weir::stage::ops
