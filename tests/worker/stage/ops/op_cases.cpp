// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/stage/ops/op_cases.h"

#include <cmath>
#include <utility>

#include "worker/base/random.h"

namespace weir::test {
namespace {

using namespace stage::ops;

// Builds the list; its random numbers go on from case to case.
class Cases {
 public:
  std::vector<OpCase> take() { return std::move(list_); }

  void linear(LinearShape s) {
    const std::size_t rows = size(s.rows), in = size(s.inputs), out = size(s.outputs);
    const std::string shape = std::to_string(s.rows) + "x" + std::to_string(s.inputs);
    add("LinearForward" + shape,
        {elements(rows * in), elements(out * in), elements(out), elements(rows * out),
         elements(rows * out)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LinearForward{s, m.element(0), m.element(1), m.element(2), m.element(3),
                              m.element(4)});
        });
    add("LinearForwardInPlace" + shape,
        {elements(rows * in), elements(out * in), elements(out), elements(rows * out)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LinearForward{s, m.element(0), m.element(1), m.element(2), m.element(3),
                              m.element(3)});
        });
    add("LinearForwardWithoutBias" + shape,
        {elements(rows * in), elements(out * in), elements(rows * out)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LinearForward{s, m.element(0), m.element(1), nullptr, nullptr, m.element(2)});
        });
    add("LinearParameters" + shape,
        {elements(rows * in), elements(rows * out), floats(out * in), floats(out)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LinearBackwardParameters{s, m.element(0), m.element(1), m.floats(2), m.floats(3)});
        });
    add("LinearInput" + shape, {elements(rows * out), elements(out * in), elements(rows * in)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LinearBackwardInput{s, m.element(0), m.element(1), m.element(2)});
        });
  }

  void layernorm(LayerNormShape s) {
    const std::size_t rows = size(s.rows), c = size(s.channels);
    const std::string shape = std::to_string(s.rows) + "x" + std::to_string(s.channels);
    add("LayerNorm" + shape,
        {elements(rows * c), elements(c), elements(c), elements(rows * c), floats(2 * rows),
         elements(rows * c)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LayerNormForward{s, m.element(0), m.element(1), m.element(2), m.element(3),
                                 m.floats(4)});
          k.run(LayerNormApply{s, m.element(0), m.floats(4), m.element(1), m.element(2),
                               m.element(5)});
        });
    add("LayerNormBackward" + shape,
        {elements(rows * c), elements(c), elements(c), elements(rows * c), floats(2 * rows),
         elements(rows * c), elements(rows * c), floats(c), floats(c)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(LayerNormForward{s, m.element(0), m.element(1), m.element(2), m.element(3),
                                 m.floats(4)});
          k.run(LayerNormBackward{s, m.element(0), m.floats(4), m.element(1), m.element(5),
                                  m.element(6), m.element(6), m.floats(7), m.floats(8)});
        });
  }

  void attention(AttentionShape s) {
    const std::size_t rows = size(s.samples) * size(s.sequence), c = size(s.heads * s.size);
    const std::size_t wide = size(qkv_channels(s));
    const std::string shape = std::to_string(s.sequence) + "x" + std::to_string(c) + "By" +
                              std::to_string(s.heads) + "And" + std::to_string(s.kv_heads) +
                              (s.window > 0 ? "Of" + std::to_string(s.window) : "");
    add("AttentionForward" + shape,
        {elements(rows * wide), elements(rows * c), floats(rows * size(s.heads))},
        [s](Kernels& k, const OpMemory& m) {
          k.run(AttentionForward{s, m.element(0), m.element(1), m.floats(2), m.scratch});
        });
    list_.back().scratch = attention_scratch_floats(s);
    add("AttentionBackward" + shape,
        {elements(rows * wide), elements(rows * c), floats(rows * size(s.heads)),
         elements(rows * c), elements(rows * wide)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(AttentionBackward{s, m.element(0), m.element(1), m.floats(2), m.element(3),
                                  m.element(4), m.scratch});
        });
    list_.back().scratch = attention_scratch_floats(s);
  }

  void rms_norm(RmsNormShape s) {
    const std::size_t rows = size(s.rows), c = size(s.channels), count = rows * size(s.stride);
    const std::string shape =
        std::to_string(s.rows) + "x" + std::to_string(s.heads) + "x" + std::to_string(s.channels);
    add("RmsNorm" + shape,
        {elements(count), elements(c), elements(count), floats(rows * size(s.heads)),
         elements(count)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(RmsNormForward{s, m.element(0), m.element(1), m.element(2), m.floats(3)});
          k.run(RmsNormApply{s, m.element(0), m.floats(3), m.element(1), m.element(4)});
        });
    add("RmsNormBackward" + shape,
        {elements(count), elements(c), elements(count), floats(rows * size(s.heads)),
         elements(count), elements(count), floats(c)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(RmsNormForward{s, m.element(0), m.element(1), m.element(2), m.floats(3)});
          k.run(RmsNormBackward{s, m.element(0), m.floats(3), m.element(1), m.element(4),
                                m.element(5), m.element(5), m.floats(6)});
        });
    add("RmsNormBackwardInPlace" + shape,
        {elements(count), elements(c), elements(count), floats(rows * size(s.heads)), floats(c)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(RmsNormBackward{s, m.element(0), m.floats(3), m.element(1), m.element(2), nullptr,
                                m.element(2), m.floats(4)});
        });
  }

  void rotary(RotaryShape s) {
    const std::size_t count = size(s.samples) * size(s.sequence) * size(s.stride);
    add("Rotary" + std::to_string(s.sequence) + "x" + std::to_string(s.size) +
            (s.direction < 0 ? "Back" : "") + (s.factor > 1 ? "Scaled" : ""),
        {elements(count)}, [s](Kernels& k, const OpMemory& m) { k.run(Rotary{s, m.element(0)}); });
  }

  void swiglu(SwigluShape s) {
    const std::size_t count = size(s.rows) * size(s.channels);
    add("Swiglu" + std::to_string(s.rows) + "x" + std::to_string(s.channels),
        {elements(2 * count, 4), elements(count), elements(count), elements(2 * count)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(SwigluForward{s, m.element(0), m.element(1)});
          k.run(SwigluBackward{s, m.element(0), m.element(2), m.element(3)});
        });
  }

  void activations(std::size_t count) {
    const auto arrays = [&] {
      return std::vector<OpArray>{elements(count, 4), elements(count), elements(count),
                                  elements(count)};
    };
    add("Gelu" + std::to_string(count), arrays(), [count](Kernels& k, const OpMemory& m) {
      k.run(GeluForward{count, m.element(0), m.element(2)});
      k.run(GeluBackward{count, m.element(0), m.element(1), m.element(3)});
    });
    add("Relu" + std::to_string(count), arrays(), [count](Kernels& k, const OpMemory& m) {
      k.run(ReluForward{count, m.element(0), m.element(2)});
      k.run(ReluBackward{count, m.element(0), m.element(1), m.element(3)});
    });
    add("RoundValues" + std::to_string(count), {floats(count), elements(count)},
        [count](Kernels& k, const OpMemory& m) {
          k.run(RoundValues{count, m.floats(0), m.element(1)});
        });
  }

  void embedding(EmbeddingShape s) {
    constexpr int kVocabulary = 11;  // few, so that tokens repeat
    const std::size_t places = size(s.samples) * size(s.sequence), c = size(s.channels);
    const std::string shape = std::to_string(s.sequence) + "x" + std::to_string(s.channels);
    add("Embedding" + shape,
        {elements(kVocabulary * c), elements(size(s.sequence) * c), elements(places * c),
         elements(places * c), floats(kVocabulary * c), floats(size(s.sequence) * c)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(EmbeddingForward{s, m.tokens, m.element(0), m.element(1), m.element(2)});
          k.run(EmbeddingBackward{s, m.tokens, m.element(3), m.floats(4), m.floats(5)});
        });
    list_.back().tokens = tokens(places, kVocabulary);
    add("EmbeddingAlone" + shape,
        {elements(kVocabulary * c), elements(places * c), elements(places * c),
         floats(kVocabulary * c)},
        [s](Kernels& k, const OpMemory& m) {
          k.run(EmbeddingForward{s, m.tokens, m.element(0), nullptr, m.element(1)});
          k.run(EmbeddingBackward{s, m.tokens, m.element(2), m.floats(3), nullptr});
        });
    list_.back().tokens = tokens(places, kVocabulary);
    const ContextShape context{s.samples, s.sequence, s.channels, 3, kVocabulary};
    add("ContextEmbedding" + shape,
        {elements((kVocabulary + 1) * c), elements(3 * places * c), elements(3 * places * c),
         floats((kVocabulary + 1) * c)},
        [context](Kernels& k, const OpMemory& m) {
          k.run(ContextEmbeddingForward{context, m.tokens, m.element(0), m.element(1)});
          k.run(ContextEmbeddingBackward{context, m.tokens, m.element(2), m.floats(3)});
        });
    list_.back().tokens = tokens(places, kVocabulary);
  }

  void softmax_loss(int vocabulary) {
    constexpr int kRows = 50;
    constexpr float kScale = 0.25F;
    add("SoftmaxLoss" + std::to_string(vocabulary), {elements(kRows * size(vocabulary), 5)},
        [vocabulary](Kernels& k, const OpMemory& m) {
          k.run(SoftmaxLoss{kRows, vocabulary, m.tokens, kScale, m.element(0), m.result});
        });
    list_.back().tokens = tokens(kRows, vocabulary);
  }

  // With sums, those of two micro-batches, which round differently than floats do.
  void adamw(std::size_t count, float gradient_scale, bool from_sums = false) {
    std::vector<OpArray> arrays = {floats(count), floats(count), floats(count), floats(count)};
    for (float& value : arrays[3].values) value = std::abs(value);  // the second moment
    if (from_sums) arrays.push_back({std::vector<float>(2 * count), false});
    const std::string name = std::string("AdamW") + (gradient_scale == 1 ? "" : "Scaled") +
                             (from_sums ? "FromSums" : "");
    add(name + std::to_string(count), std::move(arrays), [=](Kernels& k, const OpMemory& m) {
      StepGradient gradient = m.floats(0);
      if (from_sums) {
        auto* const sums = static_cast<double*>(m.arrays[4]);
        for (const std::size_t term : {0, 1}) k.run(AddExactly{count, m.floats(term), sums});
        gradient = sums;
      }
      k.run(AdamW{{.rate = 1e-2F,
                   .beta1 = 0.9F,
                   .beta2 = 0.95F,
                   .epsilon = 1e-8F,
                   .weight_decay = 0.1F,
                   .correction1 = 0.1F,
                   .correction2 = 0.05F,
                   .gradient_scale = gradient_scale},
                  count,
                  gradient,
                  m.floats(1),
                  m.floats(2),
                  m.floats(3)});
      // Arrays are compared as floats, and halves of doubles are none.
      if (from_sums) k.run(Zero{m.floats(4), 2 * count});
    });
  }

 private:
  static std::size_t size(int extent) { return static_cast<std::size_t>(extent); }

  void add(std::string name, std::vector<OpArray> arrays,
           std::function<void(Kernels&, const OpMemory&)> calls) {
    list_.push_back(
        {.name = std::move(name), .arrays = std::move(arrays), .calls = std::move(calls)});
  }
  std::vector<float> random(std::size_t count, float scale) {
    std::vector<float> values(count);
    for (float& value : values) value = scale * static_cast<float>(2 * random_.uniform() - 1);
    return values;
  }
  OpArray elements(std::size_t count, float scale = 1) { return {random(count, scale), true}; }
  OpArray floats(std::size_t count) { return {random(count, 1), false}; }
  std::vector<std::int32_t> tokens(std::size_t count, int below) {
    std::vector<std::int32_t> values(count);
    for (auto& value : values) {
      value = static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(below)));
    }
    return values;
  }

  Random random_{17};
  std::vector<OpCase> list_;
};

}  // namespace

std::vector<OpCase> op_cases() {
  Cases cases;
  for (const LinearShape s :
       {LinearShape{64, 64, 192}, {7, 33, 50}, {256, 768, 128}, {300, 8, 40}}) {
    cases.linear(s);
  }
  for (const LayerNormShape s : {LayerNormShape{64, 128}, {5, 33}, {100, 768}, {300, 40}}) {
    cases.layernorm(s);
  }
  // Some heads share K and V, some see a window of tokens only.
  for (const AttentionShape s : {AttentionShape{2, 64, 4, 4, 16},
                                 {1, 37, 3, 3, 16},
                                 {2, 100, 2, 2, 128},
                                 {1, 70, 3, 3, 20},
                                 {1, 150, 1, 1, 64},
                                 {2, 70, 6, 2, 16},
                                 {1, 65, 4, 1, 24},
                                 {1, 130, 2, 1, 32, 40},
                                 {1, 140, 2, 1, 128, 70},
                                 {2, 150, 4, 2, 12, 7}}) {
    cases.attention(s);
  }
  for (const RmsNormShape s :
       {rms_norm_of_rows(64, 128, 1e-5F), rms_norm_of_rows(5, 33, 1e-6F),
        rms_norm_of_rows(100, 768, 1e-5F), RmsNormShape{40, 4, 16, 96, 1e-6F},
        RmsNormShape{7, 3, 10, 41, 1e-5F}, rms_norm_of_rows(300, 40, 1e-5F)}) {
    cases.rms_norm(s);
  }
  for (const RotaryShape s :
       {RotaryShape{2, 70, 5, 16, 96, 1, 1e4F}, RotaryShape{1, 9, 3, 6, 18, 1, 1e6F},
        RotaryShape{2, 33, 2, 64, 200, -1, 5e5F},
        RotaryShape{1, 50, 2, 32, 64, 1, 5e5F, 8, 1, 4, 64}}) {
    cases.rotary(s);
  }
  for (const SwigluShape s : {SwigluShape{64, 128}, {5, 33}, {100, 1536}, {1, 1}}) {
    cases.swiglu(s);
  }
  for (const std::size_t count : {1, 1023, 100'000}) cases.activations(count);
  for (const EmbeddingShape s :
       {EmbeddingShape{2, 16, 32}, {3, 7, 5}, {4, 64, 256}, {2, 75, 1100}}) {
    cases.embedding(s);
  }
  for (const int vocabulary : {2, 33, 1000, 9000}) cases.softmax_loss(vocabulary);
  cases.adamw(5003, 1);
  cases.adamw(5003, 0.3F);
  cases.adamw(5003, 0.3F, true);
  return cases.take();
}

}  // namespace weir::test
