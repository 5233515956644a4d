// SPDX-License-Identifier: Apache-2.0
// The parameters of one layer in one allocation, in the order of the layer's specifications, but
// those that are tied behind the others, and those that are frozen behind all: the sums of the
// gradients, value, gradient and Adam's two moments; in bf16 also the rounded values with which the
// layer computes. Of frozen ones there are values and rounded values only. Initial values depend on
// (seed, layer, name) only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/base/result.h"
#include "worker/stage/layer.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::stage {

class LayerParameters {
 public:
  // All trained parameters, or in a split backward those that are late, or the others.
  enum class Part : unsigned char { kAll, kLate, kOther };
  // Where the gradient of a step is read: in the sums, or where they have been rounded to.
  enum class GradientIn : unsigned char { kSums, kValues };

  // Takes state_bytes() of the device's memory, and zeroes it. The precision comes from `options`.
  // `ops` must be kernels of that device.
  static Result<LayerParameters> make(const std::vector<ParameterSpec>& specs, int layer,
                                      const ModelOptions& options, device::Device& device,
                                      ops::Kernels& ops);
  // Writes the values of step 0: those of `own`, a layer that has been attached, or of `source`, or
  // if both are null random ones.
  Status set_initial(std::uint64_t seed, device::Device& device, Layer* own = nullptr,
                     const LayerSource* source = nullptr);

  // The values with which the layer computes, as of the last refresh().
  const std::vector<ops::Element*>& values() const { return elements_; }
  void refresh(ops::Kernels& ops);
  const std::vector<float*>& gradients() const { return gradients_; }  // null where frozen
  void zero_sums(ops::Kernels& ops);
  void zero_sums(ops::Kernels& ops, std::size_t parameter);  // of one that is trained
  // Gradients of one micro-batch: zeroed, or added to the sums (ops/exact_sum.h).
  void zero_gradients(ops::Kernels& ops, Part part);
  void sum_gradients(ops::Kernels& ops, Part part);
  void round_sums(ops::Kernels& ops);  // the gradient becomes that of the whole step
  // The sum of squares of the step's gradient, into device memory. A table that is tied to another
  // layer's counts there.
  void sum_squares(ops::Kernels& ops, GradientIn in, double* sum) const;
  std::span<double> sums() const;                       // of all parameters that are trained
  std::span<float> gradient() const;                    // of the same, in the same order
  std::span<double> sums(std::size_t parameter) const;  // of one that is trained
  void update(ops::Kernels& ops, GradientIn in, const ops::AdamWStep& step);
  void append_to(std::vector<Parameter>& list) const;

 private:
  LayerParameters() = default;
  template <class F>
  void for_runs(Part part, F f) const;
  void add_trained(const ParameterSpec& spec);

  int layer_ = 0;
  Precision precision_ = Precision::kFp32;
  std::int64_t count_ = 0;   // of all parameters that are trained
  std::int64_t tied_ = 0;    // of those of them that are tied
  std::int64_t frozen_ = 0;  // of all others
  device::Buffer memory_;
  std::vector<ParameterSpec> specs_;
  std::vector<float*> values_, gradients_;
  std::vector<ops::Element*> elements_;  // in float32 equal to values_
  // Neighbours of those that are trained that are all late, or all not.
  struct Run {
    bool late;
    std::ptrdiff_t first, count;
  };
  std::vector<Run> runs_;
};

// The constants of AdamW for a step (0, 1, ...), with its learning rate.
ops::AdamWStep adamw_step(const ModelOptions& options, std::int64_t step);

}  // namespace weir::stage
