// SPDX-License-Identifier: Apache-2.0
// Samples of a file of tokens. Window w holds the tokens w*T .. w*T+T; its last token is only a
// target. So every token is a target once per epoch, except for up to T tokens at the end.
#include <algorithm>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/base/random.h"
#include "worker/data/dataset.h"
#include "worker/data/permutation.h"
#include "worker/data/token_file.h"

namespace weir::data {
namespace {

class Windows final : public Dataset {
 public:
  Windows(std::unique_ptr<TokenFile> file, int sequence, std::uint64_t seed)
      : file_(std::move(file)),
        sequence_(static_cast<std::size_t>(sequence)),
        windows_((file_->tokens() - 1) / sequence_),
        seed_(seed) {}

  Status sample(std::int64_t step, int index, int global_batch, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const override {
    WEIR_CHECK(inputs.size() == sequence_ && targets.size() == sequence_, "one sequence");
    WEIR_CHECK(step >= 0 && index >= 0 && index < global_batch, "a sample of the step");
    const auto id = static_cast<std::uint64_t>(step * global_batch + index);
    // A new order for each epoch.
    const Permutation order(windows_, mix_seed(seed_, id / windows_));
    std::vector<std::int32_t> window(sequence_ + 1);
    WEIR_OK(file_->read(order(id % windows_) * sequence_, window));
    std::copy_n(window.begin(), sequence_, inputs.begin());
    std::copy_n(window.begin() + 1, sequence_, targets.begin());
    return Unit{};
  }

  std::string description() const override {
    return file_->description() + ", " + std::to_string(windows_) + " windows of " +
           std::to_string(sequence_);
  }
  std::string content() const override { return file_->content(); }

 private:
  const std::unique_ptr<TokenFile> file_;
  const std::size_t sequence_;
  const std::uint64_t windows_;
  const std::uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_tokens(const std::string& path, const TokenOptions& options) {
  if (options.sequence < 1)
    return invalid("sequence: " + std::to_string(options.sequence) + " is below 1");
  WEIR_TRY(auto file, TokenFile::open(path, options.flat, options.vocabulary));
  const std::uint64_t least = static_cast<std::uint64_t>(options.sequence) + 1;
  if (file->tokens() < least) {
    return invalid("data file " + file->path() + ": " + file->size() +
                   ", less than one window of " + std::to_string(least));
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<Windows>(std::move(file), options.sequence, options.seed));
}

}  // namespace weir::data
