// SPDX-License-Identifier: Apache-2.0
// Samples of files of tokens. Window w of a file holds the tokens w*T .. w*T+T; its last token is
// only a target. So every token is a target once per epoch, except for up to T tokens at the end.
#include <algorithm>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/base/digest.h"
#include "worker/base/random.h"
#include "worker/base/text.h"
#include "worker/data/dataset.h"
#include "worker/data/mixture.h"
#include "worker/data/permutation.h"
#include "worker/data/token_file.h"

namespace weir::data {
namespace {

// The content of more files is told by a hash, since it stands in messages of one line.
constexpr std::size_t kMostListed = 8;

class Windows final : public Dataset {
 public:
  struct Part {
    std::unique_ptr<TokenFile> file;
    int places = kPlaces;
    std::uint64_t windows = 0;
    std::uint64_t seed = 0;
  };
  Windows(std::vector<Part> parts, std::size_t sequence)
      : parts_(std::move(parts)), mixture_(places_of(parts_)), sequence_(sequence) {}

  Status sample(std::int64_t step, int index, int global_batch, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const override {
    WEIR_CHECK(inputs.size() == sequence_ && targets.size() == sequence_, "one sequence");
    WEIR_CHECK(step >= 0 && index >= 0 && index < global_batch, "a sample of the step");
    const Mixture::Sample found =
        mixture_.at(static_cast<std::uint64_t>(step * global_batch + index));
    const Part& part = parts_[found.file];
    // A new order for each epoch of the file.
    const Permutation order(part.windows, mix_seed(part.seed, found.number / part.windows));
    std::vector<std::int32_t> window(sequence_ + 1);
    WEIR_OK(part.file->read(order(found.number % part.windows) * sequence_, window));
    std::copy_n(window.begin(), sequence_, inputs.begin());
    std::copy_n(window.begin() + 1, sequence_, targets.begin());
    return Unit{};
  }

  std::string description() const override {
    return text_of([&](const Part& part) {
      return part.file->description() + ", " + std::to_string(part.windows) + " windows of " +
             std::to_string(sequence_);
    });
  }
  std::string content() const override {
    const std::string all = text_of([](const Part& part) { return part.file->content(); });
    if (parts_.size() <= kMostListed) return all;
    return std::to_string(parts_.size()) + " files, sha256:" + sha256_hex(all);
  }

 private:
  static std::vector<int> places_of(const std::vector<Part>& parts) {
    std::vector<int> places;
    for (const Part& part : parts) places.push_back(part.places);
    return places;
  }
  // The text of a single file, or those of several with their shares.
  template <class TextOf>
  std::string text_of(TextOf text) const {
    if (parts_.size() == 1) return text(parts_.front());
    return joined(parts_, "; ", [&](const Part& part) {
      return std::to_string(part.places) + "/" + std::to_string(kPlaces) + " of " + text(part);
    });
  }

  const std::vector<Part> parts_;
  const Mixture mixture_;
  const std::size_t sequence_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_tokens(const std::string& list, const TokenOptions& options) {
  if (options.sequence < 1)
    return invalid("sequence: " + std::to_string(options.sequence) + " is below 1");
  const auto sequence = static_cast<std::size_t>(options.sequence);
  WEIR_TRY(const std::vector<Share> shares, parse_shares(list));
  std::vector<Windows::Part> parts;
  for (const Share& share : shares) {
    WEIR_TRY(auto file, TokenFile::open(share.path, options.flat, options.vocabulary));
    if (file->tokens() < sequence + 1) {
      return invalid("data file " + file->path() + ": " + file->size() +
                     ", less than one window of " + std::to_string(sequence + 1));
    }
    const std::uint64_t windows = (file->tokens() - 1) / sequence;
    // Files of equal size have different orders.
    const std::uint64_t seed =
        shares.size() == 1 ? options.seed : mix_seed(options.seed, parts.size());
    parts.push_back({std::move(file), share.places, windows, seed});
  }
  return std::unique_ptr<Dataset>(std::make_unique<Windows>(std::move(parts), sequence));
}

}  // namespace weir::data
