// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/small_task.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weir::sim {
namespace {

constexpr int kInputs = 24, kHidden = 48, kClasses = 10;
constexpr int kTrain = 16384, kTest = 1024, kBatch = 32;
constexpr float kRate = 0.08F, kMomentum = 0.9F;

std::size_t rows(int inputs) {
  return static_cast<std::size_t>(inputs) + 1;
}

}  // namespace

SmallTask::SmallTask(int replicas, int stages, std::uint64_t seed) {
  sizes_.push_back(kInputs);
  for (int s = 0; s + 1 < stages; ++s) sizes_.push_back(kHidden);
  sizes_.push_back(kClasses);
  Random fixed(1234), start(mix_seed(seed, "start"));  // one task, many runs
  Model model;
  for (int s = 0; s < stages; ++s) {
    const auto in = sizes_[static_cast<std::size_t>(s)],
               out = sizes_[static_cast<std::size_t>(s) + 1];
    Layer teacher(rows(in) * static_cast<std::size_t>(out)), layer(teacher.size());
    const auto scale = static_cast<float>(1 / std::sqrt(in));
    for (float& w : teacher) w = 1.6F * scale * static_cast<float>(fixed.normal());
    for (float& w : layer) w = scale * static_cast<float>(start.normal());
    std::fill(teacher.end() - out, teacher.end(), 0.0F);
    teacher_.push_back(std::move(teacher));
    model.push_back(std::move(layer));
  }
  train_ = samples(fixed, kTrain);
  test_ = samples(fixed, kTest);
  Model zero = model;
  for (Layer& layer : zero) std::fill(layer.begin(), layer.end(), 0.0F);
  for (int p = 0; p < replicas; ++p) {
    random_.emplace_back(mix_seed(seed, static_cast<std::uint64_t>(p)));
    models_.push_back(model);
    momentum_.push_back(zero);
    moves_.emplace_back();
  }
}

std::vector<SmallTask::Sample> SmallTask::samples(Random& random, int count) const {
  std::vector<Sample> result(static_cast<std::size_t>(count));
  for (Sample& sample : result) {
    for (int i = 0; i < kInputs; ++i) {
      sample.input.push_back(static_cast<float>(random.normal()));
    }
    auto scores = forward(teacher_, sample.input).back();
    for (float& score : scores) score += 0.3F * static_cast<float>(random.normal());
    sample.label = static_cast<int>(std::ranges::max_element(scores) - scores.begin());
  }
  return result;
}

std::vector<std::vector<float>> SmallTask::forward(const Model& model,
                                                   const std::vector<float>& input) const {
  std::vector<std::vector<float>> values{input};
  for (std::size_t s = 0; s < model.size(); ++s) {
    const auto in = static_cast<std::size_t>(sizes_[s]),
               out = static_cast<std::size_t>(sizes_[s + 1]);
    const float* const weights = model[s].data();
    std::vector<float> sums(weights + in * out, weights + (in + 1) * out);
    for (std::size_t i = 0; i < in; ++i) {
      const float value = values.back()[i];
      for (std::size_t o = 0; o < out; ++o) sums[o] += value * weights[i * out + o];
    }
    if (s + 1 < model.size()) {
      for (float& sum : sums) sum = std::tanh(sum);
    }
    values.push_back(std::move(sums));
  }
  return values;
}

void SmallTask::gradient(const Model& model, const Sample& sample, float scale, Model& into) const {
  const auto values = forward(model, sample.input);
  std::vector<float> delta = values.back();
  const float most = *std::ranges::max_element(delta);
  float sum = 0;
  for (float& d : delta) sum += d = std::exp(d - most);
  for (float& d : delta) d *= scale / sum;
  delta[static_cast<std::size_t>(sample.label)] -= scale;
  for (std::size_t s = model.size(); s-- > 0;) {
    const auto in = static_cast<std::size_t>(sizes_[s]), out = delta.size();
    std::vector<float> before(in);
    for (std::size_t i = 0; i < in; ++i) {
      const float value = values[s][i];
      float back = 0;
      for (std::size_t o = 0; o < out; ++o) {
        into[s][i * out + o] += value * delta[o];
        back += model[s][i * out + o] * delta[o];
      }
      before[i] = back * (1 - value * value);
    }
    for (std::size_t o = 0; o < out; ++o) into[s][in * out + o] += delta[o];
    delta = std::move(before);
  }
}

void SmallTask::step(int p, double share) {
  const auto replica = static_cast<std::size_t>(p);
  const int count = std::max(1, static_cast<int>(std::lround(kBatch * share)));
  Model gradients = teacher_;
  for (Layer& layer : gradients) std::fill(layer.begin(), layer.end(), 0.0F);
  for (int i = 0; i < count; ++i) {
    const Sample& sample = train_[random_[replica].below(kTrain)];
    gradient(models_[replica], sample, 1.0F / static_cast<float>(count), gradients);
  }
  for (std::size_t s = 0; s < gradients.size(); ++s) {
    for (std::size_t i = 0; i < gradients[s].size(); ++i) {
      float& velocity = momentum_[replica][s][i];
      velocity = kMomentum * velocity + gradients[s][i];
      models_[replica][s][i] -= kRate * velocity;
    }
  }
}

SmallTask::Layer SmallTask::mean_of(const std::vector<int>& group, std::size_t stage,
                                    const std::vector<double>& weights) const {
  Layer mean(models_[0][stage].size(), 0.0F);
  for (std::size_t member = 0; member < group.size(); ++member) {
    const Layer& layer = models_[static_cast<std::size_t>(group[member])][stage];
    const auto weight = static_cast<float>(weights[member]);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += weight * layer[i];
  }
  return mean;
}

void SmallTask::mix(const std::vector<int>& group, int stage, const std::vector<double>& weights) {
  const auto s = static_cast<std::size_t>(stage);
  const Layer mean = mean_of(group, s, weights);
  for (const int p : group) models_[static_cast<std::size_t>(p)][s] = mean;
}

void SmallTask::begin_mix(const std::vector<int>& group, int stage,
                          const std::vector<double>& weights) {
  const auto s = static_cast<std::size_t>(stage);
  const Layer mean = mean_of(group, s, weights);
  for (const int p : group) {
    const Model& model = models_[static_cast<std::size_t>(p)];
    Model& move = moves_[static_cast<std::size_t>(p)];
    move.resize(model.size());
    move[s] = mean;
    for (std::size_t i = 0; i < mean.size(); ++i) move[s][i] -= model[s][i];
  }
}

void SmallTask::end_mix(int p) {
  Model& model = models_[static_cast<std::size_t>(p)];
  const Model move = std::exchange(moves_[static_cast<std::size_t>(p)], {});
  for (std::size_t s = 0; s < move.size(); ++s) {
    for (std::size_t i = 0; i < move[s].size(); ++i) model[s][i] += move[s][i];
  }
}

SmallTask::Model SmallTask::mean() const {
  Model result = models_[0];
  for (std::size_t s = 0; s < result.size(); ++s) {
    for (std::size_t i = 0; i < result[s].size(); ++i) {
      float sum = 0;
      for (const Model& model : models_) sum += model[s][i];
      result[s][i] = sum / static_cast<float>(models_.size());
    }
  }
  return result;
}

double SmallTask::loss() const {
  const Model model = mean();
  double sum = 0;
  for (const Sample& sample : test_) {
    const auto scores = forward(model, sample.input).back();
    const float most = *std::ranges::max_element(scores);
    double total = 0;
    for (const float score : scores) total += std::exp(score - most);
    sum += std::log(total) - (scores[static_cast<std::size_t>(sample.label)] - most);
  }
  return sum / kTest;
}

double SmallTask::consensus_error() const {
  const Model center = mean();
  double apart = 0, norm = 0;
  for (std::size_t s = 0; s < center.size(); ++s) {
    for (std::size_t i = 0; i < center[s].size(); ++i) {
      norm += static_cast<double>(center[s][i]) * center[s][i];
      for (const Model& model : models_) {
        const double difference = model[s][i] - center[s][i];
        apart += difference * difference;
      }
    }
  }
  return apart / static_cast<double>(models_.size()) / norm;
}

}  // namespace weir::sim
