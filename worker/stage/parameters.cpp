// SPDX-License-Identifier: Apache-2.0
// Memory layout: all sums, all values, all gradients, all first moments, all second moments, and in
// bf16 all rounded values. In each of them tied parameters follow the others, and behind all values
// come those of frozen parameters.
#include "worker/stage/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/base/random.h"
#include "worker/device/host_view.h"
#include "worker/stage/learning_rate.h"

namespace weir::stage {
namespace {

constexpr int kSums = 2;  // a double takes the space of two floats

constexpr std::size_t kPiece = std::size_t{1} << 20U;  // values that are made at a time: 4 MB

Status set_random(const ParameterSpec& spec, std::uint64_t seed, float* value,
                  device::Device& device) {
  // A uniform variable on [-a, a) has the standard deviation a / sqrt(3).
  const float half_width = spec.deviation * std::numbers::sqrt3_v<float>;
  Random random(seed);
  const std::span<float> all(value, static_cast<std::size_t>(spec.count()));
  for (std::size_t first = 0; first < all.size(); first += kPiece) {
    const auto piece = all.subspan(first, std::min(kPiece, all.size() - first));
    WEIR_TRY(auto view, device::HostView<float>::to_fill(device, piece));
    for (float& one : view.values()) {
      const auto offset = static_cast<float>(2 * random.uniform() - 1);
      one = spec.mean + half_width * offset;
    }
    WEIR_TRY([[maybe_unused]] const Unit written, view.write_back());
  }
  return Unit{};
}

}  // namespace

Result<LayerParameters> LayerParameters::make(const std::vector<ParameterSpec>& specs, int layer,
                                              const ModelOptions& options, device::Device& device,
                                              ops::Kernels& ops) {
  LayerParameters made;
  made.layer_ = layer;
  made.precision_ = options.precision;
  made.specs_ = specs;
  for (const auto& spec : specs) {
    if (!spec.trainable) made.frozen_ += spec.count_with_gap();
  }
  for (const bool tied : {false, true}) {
    for (const auto& spec : specs) {
      if (spec.trainable && tied == !spec.tied_to.empty()) made.add_trained(spec);
    }
  }
  constexpr std::int64_t kFloat = sizeof(float);
  const auto bytes = static_cast<std::size_t>(
      state_bytes(options.precision, made.count_ * kFloat, made.frozen_ * kFloat));
  made.memory_ = device.allocate(bytes);
  if (!made.memory_) return no_memory(device, bytes);

  auto* const memory = made.memory_.as<float>();
  const std::int64_t floats = kStateFactor * made.count_ + made.frozen_;
  // Zeroes the sums, too, whose zero has the same bits.
  ops.run(ops::Zero{memory, static_cast<std::size_t>(floats)});
  float* const values = memory + kSums * made.count_;
  auto* const elements = reinterpret_cast<std::byte*>(
      options.precision == Precision::kBf16 ? memory + floats : values);
  // Where the next one begins, in values.
  std::int64_t trained = 0, tied = made.count_ - made.tied_, frozen = made.count_;
  for (const auto& spec : specs) {
    std::int64_t& at = !spec.trainable ? frozen : spec.tied_to.empty() ? trained : tied;
    made.values_.push_back(values + at);
    made.gradients_.push_back(spec.trainable ? made.gradient().data() + at : nullptr);
    made.elements_.push_back(
        reinterpret_cast<ops::Element*>(elements + at * element_bytes(options.precision)));
    at += spec.count_with_gap();
  }
  WEIR_TRY([[maybe_unused]] const Unit enqueued, ops.status());
  return made;
}

void LayerParameters::add_trained(const ParameterSpec& spec) {
  if (runs_.empty() || runs_.back().late != spec.late) runs_.push_back({spec.late, count_, 0});
  const std::int64_t count = spec.count_with_gap();
  runs_.back().count += count;
  count_ += count;
  if (!spec.tied_to.empty()) tied_ += count;
}

Status LayerParameters::set_initial(std::uint64_t seed, device::Device& device, Layer* own,
                                    const LayerSource* source) {
  const std::uint64_t layer_seed = mix_seed(seed, static_cast<std::uint64_t>(layer_));
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (own == nullptr && source == nullptr) {
      const bool tied = !specs_[i].tied_to.empty();  // to one of the first layer
      WEIR_OK(set_random(specs_[i],
                         tied ? mix_seed(mix_seed(seed, 0), specs_[i].tied_to)
                              : mix_seed(layer_seed, specs_[i].name),
                         values_[i], device));
      continue;
    }
    const std::span<float> all(values_[i], static_cast<std::size_t>(specs_[i].count()));
    WEIR_TRY(auto view, device::HostView<float>::to_fill(device, all));
    WEIR_OK(own != nullptr ? own->set_initial(i, view.values())
                           : source->set_initial(specs_[i], view.values()));
    WEIR_OK(view.write_back());
  }
  return Unit{};
}

void LayerParameters::refresh(ops::Kernels& ops) {
  if (precision_ == Precision::kFp32 || values_.empty()) return;
  float* const values = memory_.as<float>() + kSums * count_;
  float* const rounded = memory_.as<float>() + kStateFactor * count_ + frozen_;
  ops.run(ops::RoundValues{static_cast<std::size_t>(count_ + frozen_), values,
                           reinterpret_cast<ops::Element*>(rounded)});
}

void LayerParameters::zero_sums(ops::Kernels& ops) {
  ops.run(ops::Zero{memory_.as<float>(), static_cast<std::size_t>(kSums * count_)});
}

void LayerParameters::zero_sums(ops::Kernels& ops, std::size_t parameter) {
  const std::span<double> zeroed = sums(parameter);
  ops.run(ops::Zero{reinterpret_cast<float*>(zeroed.data()), zeroed.size_bytes() / sizeof(float)});
}

// Calls f(first, count) for the runs of the part.
template <class F>
void LayerParameters::for_runs(Part part, F f) const {
  if (part == Part::kAll) return f(std::ptrdiff_t{0}, static_cast<std::size_t>(count_));
  for (const Run& run : runs_) {
    if (run.late == (part == Part::kLate)) f(run.first, static_cast<std::size_t>(run.count));
  }
}

void LayerParameters::zero_gradients(ops::Kernels& ops, Part part) {
  for_runs(part, [&](std::ptrdiff_t first, std::size_t count) {
    ops.run(ops::Zero{gradient().data() + first, count});
  });
}

std::span<double> LayerParameters::sums() const {
  return {memory_.as<double>(), static_cast<std::size_t>(count_)};
}

std::span<float> LayerParameters::gradient() const {
  return {memory_.as<float>() + (kSums + 1) * count_ + frozen_, static_cast<std::size_t>(count_)};
}

std::span<double> LayerParameters::sums(std::size_t parameter) const {
  const std::ptrdiff_t at = gradients_[parameter] - gradient().data();
  return sums().subspan(static_cast<std::size_t>(at),
                        static_cast<std::size_t>(specs_[parameter].count()));
}

void LayerParameters::sum_gradients(ops::Kernels& ops, Part part) {
  for_runs(part, [&](std::ptrdiff_t first, std::size_t count) {
    ops.run(ops::AddExactly{count, gradient().data() + first, sums().data() + first});
  });
}

void LayerParameters::round_sums(ops::Kernels& ops) {
  ops.run(ops::RoundSums{sums().size(), sums().data(), gradient().data()});
}

void LayerParameters::sum_squares(ops::Kernels& ops, GradientIn in, double* sum) const {
  const auto of = in == GradientIn::kSums ? ops::StepGradient(sums().data())
                                          : ops::StepGradient(gradient().data());
  ops.run(ops::SumSquares{static_cast<std::size_t>(count_ - tied_), of, sum});
}

void LayerParameters::update(ops::Kernels& ops, GradientIn in, const ops::AdamWStep& step) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].trainable) continue;
    ops::AdamWStep own = step;
    if (!specs_[i].decays()) own.weight_decay = 0;
    const auto of = in == GradientIn::kSums ? ops::StepGradient(sums(i).data())
                                            : ops::StepGradient(gradients_[i]);
    ops.run(ops::AdamW{own, static_cast<std::size_t>(specs_[i].count()), of, values_[i],
                       gradients_[i] + count_, gradients_[i] + 2 * count_});
  }
}

void LayerParameters::append_to(std::vector<Parameter>& list) const {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const auto count = static_cast<std::size_t>(specs_[i].count());
    Parameter& one = list.emplace_back(Parameter{.layer = layer_,
                                                 .name = specs_[i].name,
                                                 .shape = specs_[i].shape,
                                                 .value = {values_[i], count},
                                                 .gradient = {},
                                                 .adam_m = {},
                                                 .adam_v = {}});
    if (!specs_[i].trainable) continue;
    one.gradient = {gradients_[i], count};
    one.adam_m = {gradients_[i] + count_, count};
    one.adam_v = {gradients_[i] + 2 * count_, count};
  }
}

ops::AdamWStep adamw_step(const ModelOptions& options, std::int64_t step) {
  const auto t = static_cast<double>(step + 1);
  return {.rate = static_cast<float>(learning_rate(options, step)),
          .beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .epsilon = static_cast<float>(options.epsilon),
          .weight_decay = static_cast<float>(options.weight_decay),
          .correction1 = static_cast<float>(1 - std::pow(options.beta1, t)),
          .correction2 = static_cast<float>(1 - std::pow(options.beta2, t))};
}

}  // namespace weir::stage
