// SPDX-License-Identifier: Apache-2.0
// Each CUDA operation against its host reference at three shapes, one of them ragged. Sums run in
// another order, so the tolerance is the rounding of float sums: 2e-5 of the largest element.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "tests/gpu/gpu.h"
#include "worker/base/random.h"

namespace weir::test {
namespace {

using namespace stage::ops;

constexpr double kTolerance = 2e-5;

// Runs the same calls on the host and on the device, on copies of the same arrays, and compares
// every array afterwards.
class Twins : public OnGpu {
 protected:
  using Pointers = std::vector<float*>;

  std::vector<float> random(std::size_t count, float scale = 1) {
    std::vector<float> values(count);
    for (auto& value : values) {
      value = scale * static_cast<float>(2 * random_.uniform() - 1);
    }
    return values;
  }
  std::vector<std::int32_t> tokens(std::size_t count, int below) {
    std::vector<std::int32_t> values(count);
    for (auto& value : values) {
      value = static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(below)));
    }
    return values;
  }

  void compare(std::vector<std::vector<float>> arrays,
               const std::function<void(Kernels&, const Pointers&)>& calls,
               const std::string& what) {
    Pointers device_pointers, host_pointers;
    std::vector<device::Buffer> buffers;
    for (auto& array : arrays) {
      buffers.push_back(to_device(array));
      device_pointers.push_back(buffers.back().as<float>());
      host_pointers.push_back(array.data());
    }
    calls(*make_host_kernels(), host_pointers);
    calls(*kernels_, device_pointers);
    ASSERT_TRUE(kernels_->status()) << what << ": " << kernels_->status().error().message;
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      const std::vector<float> actual = floats_of(buffers[a]);
      float most = 1e-3F;
      for (const float value : arrays[a]) most = std::max(most, std::abs(value));
      for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(actual[i], arrays[a][i], kTolerance * most)
            << what << ": array " << a << ", element " << i;
      }
    }
  }

 private:
  Random random_{17};
};

TEST_F(Twins, Linear) {
  for (const LinearShape s :
       {LinearShape{64, 64, 192}, LinearShape{7, 33, 50}, LinearShape{256, 768, 128}}) {
    const auto r = static_cast<std::size_t>(s.rows), in = static_cast<std::size_t>(s.inputs),
               out = static_cast<std::size_t>(s.outputs);
    const std::string what = "rows " + std::to_string(s.rows);
    compare(
        {random(r * in), random(out * in), random(out), random(r * out), random(r * out)},
        [&](Kernels& k, const Pointers& p) { k.linear_forward(s, p[0], p[1], p[2], p[3], p[4]); },
        what + " forward");
    compare(
        {random(r * in), random(out * in), random(r * out)},
        [&](Kernels& k, const Pointers& p) {
          k.linear_forward(s, p[0], p[1], nullptr, nullptr, p[2]);
        },
        what + " forward without bias");
    compare(
        {random(r * in), random(r * out), random(out * in), random(out)},
        [&](Kernels& k, const Pointers& p) {
          k.linear_backward_parameters(s, p[0], p[1], p[2], p[3]);
        },
        what + " parameters");
    compare(
        {random(r * out), random(out * in), random(r * in)},
        [&](Kernels& k, const Pointers& p) { k.linear_backward_input(s, p[0], p[1], p[2]); },
        what + " input");
  }
}

TEST_F(Twins, LayerNorm) {
  for (const LayerNormShape s :
       {LayerNormShape{64, 128}, LayerNormShape{5, 33}, LayerNormShape{100, 768}}) {
    const auto r = static_cast<std::size_t>(s.rows), c = static_cast<std::size_t>(s.channels);
    const std::string what = "channels " + std::to_string(s.channels);
    compare(
        {random(r * c), random(c), random(c), random(r * c), random(2 * r), random(r * c)},
        [&](Kernels& k, const Pointers& p) {
          k.layernorm_forward(s, p[0], p[1], p[2], p[3], p[4]);
          k.layernorm_apply(s, p[0], p[4], p[1], p[2], p[5]);
        },
        what);
    compare(
        {random(r * c), random(c), random(c), random(r * c), random(2 * r), random(r * c),
         random(r * c), random(c), random(c)},
        [&](Kernels& k, const Pointers& p) {
          k.layernorm_forward(s, p[0], p[1], p[2], p[3], p[4]);
          k.layernorm_backward(s, p[0], p[4], p[1], p[5], p[6], p[6], p[7], p[8]);
        },
        what + " backward");
  }
}

TEST_F(Twins, Attention) {
  for (const AttentionShape s : {AttentionShape{2, 64, 64, 4}, AttentionShape{1, 37, 48, 3},
                                 AttentionShape{2, 100, 256, 2}}) {
    const auto rows = static_cast<std::size_t>(s.samples * s.sequence);
    const auto c = static_cast<std::size_t>(s.channels);
    const auto sums = static_cast<std::size_t>(s.samples * s.heads * s.sequence);
    const std::size_t scratch = attention_scratch_floats(s);
    std::vector<float> scratch_memory(scratch);
    compare(
        {random(rows * 3 * c), random(rows * c), random(sums), random(rows * c),
         random(rows * 3 * c)},
        [&](Kernels& k, const Pointers& p) {
          k.attention_forward(s, p[0], p[1], p[2], scratch_memory.data());
          k.attention_backward(s, p[0], p[1], p[2], p[3], p[4], scratch_memory.data());
        },
        "sequence " + std::to_string(s.sequence));
  }
}

TEST_F(Twins, Activations) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1023}, std::size_t{100'000}}) {
    compare(
        {random(count, 4), random(count), random(count), random(count)},
        [&](Kernels& k, const Pointers& p) {
          k.gelu_forward(count, p[0], p[2]);
          k.gelu_backward(count, p[0], p[1], p[3]);
        },
        "gelu");
    compare(
        {random(count, 4), random(count), random(count), random(count)},
        [&](Kernels& k, const Pointers& p) {
          k.relu_forward(count, p[0], p[2]);
          k.relu_backward(count, p[0], p[1], p[3]);
        },
        "relu");
  }
}

TEST_F(Twins, Embedding) {
  for (const EmbeddingShape s :
       {EmbeddingShape{2, 16, 32}, EmbeddingShape{3, 7, 5}, EmbeddingShape{4, 64, 256}}) {
    constexpr int kVocabulary = 11;  // few, so that tokens repeat
    const auto places = static_cast<std::size_t>(s.samples * s.sequence);
    const auto c = static_cast<std::size_t>(s.channels);
    const auto ids = tokens(places, kVocabulary);
    const device::Buffer device_ids = to_device(ids);
    const auto ids_for = [&](Kernels& k) {
      return &k == kernels_.get() ? device_ids.as<std::int32_t>() : ids.data();
    };
    compare(
        {random(kVocabulary * c), random(static_cast<std::size_t>(s.sequence) * c),
         random(places * c), random(places * c), random(kVocabulary * c),
         random(static_cast<std::size_t>(s.sequence) * c)},
        [&](Kernels& k, const Pointers& p) {
          k.embedding_forward(s, ids_for(k), p[0], p[1], p[2]);
          k.embedding_backward(s, ids_for(k), p[3], p[4], p[5]);
        },
        "tokens");
    const ContextShape context{s.samples, s.sequence, s.channels, 3, kVocabulary};
    compare(
        {random((kVocabulary + 1) * c), random(3 * places * c), random(3 * places * c),
         random((kVocabulary + 1) * c)},
        [&](Kernels& k, const Pointers& p) {
          k.context_embedding_forward(context, ids_for(k), p[0], p[1]);
          k.context_embedding_backward(context, ids_for(k), p[2], p[3]);
        },
        "context");
  }
}

TEST_F(Twins, SoftmaxLoss) {
  for (const int vocabulary : {2, 33, 1000}) {
    constexpr int kRows = 50;
    const auto targets = tokens(kRows, vocabulary);
    const device::Buffer device_targets = to_device(targets);
    double host_loss = 0, device_loss = 0;
    compare(
        {random(kRows * static_cast<std::size_t>(vocabulary), 5)},
        [&](Kernels& k, const Pointers& p) {
          const bool on_device = &k == kernels_.get();
          (on_device ? device_loss : host_loss) = k.softmax_loss(
              kRows, vocabulary, on_device ? device_targets.as<std::int32_t>() : targets.data(),
              0.25F, p[0]);
        },
        "vocabulary " + std::to_string(vocabulary));
    EXPECT_NEAR(device_loss, host_loss, 1e-5 * std::abs(host_loss));
  }
}

TEST_F(Twins, AdamW) {
  constexpr std::size_t kCount = 5003;
  auto second = random(kCount);
  for (auto& value : second) value = std::abs(value);
  compare(
      {random(kCount), random(kCount), random(kCount), second},
      [&](Kernels& k, const Pointers& p) {
        k.adamw({.rate = 1e-2F,
                 .beta1 = 0.9F,
                 .beta2 = 0.95F,
                 .epsilon = 1e-8F,
                 .weight_decay = 0.1F,
                 .correction1 = 0.1F,
                 .correction2 = 0.05F},
                kCount, p[0], p[1], p[2], p[3]);
      },
      "adamw");
}

}  // namespace
}  // namespace weir::test
