// SPDX-License-Identifier: Apache-2.0
// A small random language. It uses few tokens of the vocabulary. The next token usually follows
// from the last one, or from the last two. So the loss first falls fast (which tokens occur), then
// further (which token follows), and ends near the entropy of the language.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/base/random.h"
#include "worker/data/dataset.h"

namespace weir::data {
namespace {

constexpr int kAlphabet = 32;        // tokens in use, or the whole vocabulary if smaller
constexpr double kByLast = 0.6;      // share of tokens that follow from the last one
constexpr double kByLastTwo = 0.25;  // from the last two; the rest is noise

std::vector<std::int32_t> shuffled(int size, std::uint64_t seed) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

class Synthetic final : public Dataset {
 public:
  Synthetic(int vocabulary, int sequence, std::uint64_t seed, Part part)
      : vocabulary_(vocabulary),
        sequence_(sequence),
        seed_(seed),
        sample_seed_(part == Part::kTraining ? seed : mix_seed(seed, "validation")),
        letters_(shuffled(vocabulary, mix_seed(seed, "letters"))),
        by_last_(shuffled(std::min(vocabulary, kAlphabet), mix_seed(seed, "by last"))),
        by_last_two_(shuffled(std::min(vocabulary, kAlphabet), mix_seed(seed, "by last two"))) {}

  Status sample(std::int64_t step, int index, int global_batch, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const override {
    const auto length = static_cast<std::size_t>(sequence_);
    WEIR_CHECK(inputs.size() == length && targets.size() == length, "one sequence");
    const auto sample_id = static_cast<std::uint64_t>(step * global_batch + index);
    Random random(mix_seed(sample_seed_, sample_id));
    const std::uint64_t letters = by_last_.size();
    std::uint64_t before = random.below(letters);
    std::uint64_t last = random.below(letters);
    for (std::size_t t = 0; t < length; ++t) {
      inputs[t] = letters_[last];
      const std::uint64_t next = following(before, last, random);
      before = std::exchange(last, next);
      targets[t] = letters_[last];
    }
    return Unit{};
  }

  std::string description() const override {
    return "synthetic language, vocabulary " + std::to_string(vocabulary_) + ", seed " +
           std::to_string(seed_);
  }

  std::string content() const override { return "synthetic"; }

 private:
  std::uint64_t following(std::uint64_t before, std::uint64_t last, Random& random) const {
    const double draw = random.uniform();
    const std::uint64_t noise = random.below(by_last_.size());
    if (draw < kByLast) return static_cast<std::uint64_t>(by_last_[last]);
    if (draw >= kByLast + kByLastTwo) return noise;
    const auto rotated = static_cast<std::uint64_t>(by_last_two_[before]) + last;
    return rotated % by_last_.size();
  }

  const int vocabulary_, sequence_;
  const std::uint64_t seed_, sample_seed_;
  const std::vector<std::int32_t> letters_;  // the first by_last_.size() of them are used
  const std::vector<std::int32_t> by_last_, by_last_two_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(int vocabulary, int sequence, std::uint64_t seed,
                                        Part part) {
  WEIR_CHECK(vocabulary >= 1 && sequence >= 1, "sizes are checked with the model");
  return std::make_unique<Synthetic>(vocabulary, sequence, seed, part);
}

}  // namespace weir::data
