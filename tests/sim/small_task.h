// SPDX-License-Identifier: Apache-2.0
// A small network that P replicas train, one layer per stage: 24-48-48-48-10 with tanh, labels from
// a random teacher, SGD with momentum that stays local. What groups do to learning shows here.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/base/random.h"

namespace weir::sim {

class SmallTask {
 public:
  SmallTask(int replicas, int stages, std::uint64_t seed);

  void step(int p, double share);  // a batch of 32 x share samples
  void mix(const std::vector<int>& group, int stage, const std::vector<double>& weights);
  // Beside a step: the mean of the models as they are now; end_mix() puts it under what p has
  // added.
  void begin_mix(const std::vector<int>& group, int stage, const std::vector<double>& weights);
  void end_mix(int p);             // nothing if none has begun
  double loss() const;             // of the mean model, on test data
  double consensus_error() const;  // mean |x_p - mean|^2 / |mean|^2

 private:
  using Layer = std::vector<float>;  // (inputs + 1) x outputs, the last row is the bias
  using Model = std::vector<Layer>;
  struct Sample {
    std::vector<float> input;
    int label = 0;
  };
  std::vector<Sample> samples(Random& random, int count) const;
  std::vector<std::vector<float>> forward(const Model& model,
                                          const std::vector<float>& input) const;
  void gradient(const Model& model, const Sample& sample, float scale, Model& into) const;
  Layer mean_of(const std::vector<int>& group, std::size_t stage,
                const std::vector<double>& weights) const;
  Model mean() const;

  std::vector<int> sizes_;
  Model teacher_;
  std::vector<Sample> train_, test_;
  std::vector<Random> random_;  // by replica
  std::vector<Model> models_, momentum_;
  std::vector<Model> moves_;  // to the mean that has begun; empty: none
};

}  // namespace weir::sim
