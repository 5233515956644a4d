// SPDX-License-Identifier: Apache-2.0
// Training data: the tokens of sample i of step t. A pure function of (seed, step, index), so that
// a restart or another cut reads the same data. Thread-safe after opening.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "worker/base/result.h"
#include "worker/data/token_layout.h"

namespace weir::data {

// Version of the rule that maps (seed, step, index) to a sample. Change it whenever the rule
// changes.
constexpr const char* kOrder = "1";

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Reads sample `index` (0 .. global batch-1) of a step: `sequence` inputs, and targets one token
  // later. kGone: the data has changed since it was opened, or cannot be read. kNotFound: the
  // vocabulary does not have a token of it. The error names it.
  virtual Status sample(std::int64_t step, int index, int global_batch,
                        std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const = 0;
  virtual std::string description() const = 0;
  // Identifies the data by its content, wherever it is stored: "4000 bytes,
  // sha256:0123456789abcdef".
  virtual std::string content() const = 0;
};

struct TokenOptions {
  int sequence = 0;
  int vocabulary = 0;
  std::uint64_t seed = 0;
  std::optional<TokenType> flat;  // of files without a header; nothing: bytes of a text
};
// The tokens of one file or of several ("[WEIGHT:]PATH[,...]", mixture.h; token_file.h lists the
// formats), in windows of `sequence`+1 that are shuffled for each epoch of a file. A file may grow
// while it is open, but its old content must not change. Errors are kNotFound or kInvalid and name
// the file and the reason.
Result<std::unique_ptr<Dataset>> open_tokens(const std::string& list, const TokenOptions& options);
// A seeded artificial language that can be learnt: the loss falls clearly below ln(vocabulary).
// Both parts are the same language but have no sample in common.
enum class Part : unsigned char { kTraining, kValidation };
std::unique_ptr<Dataset> make_synthetic(int vocabulary, int sequence, std::uint64_t seed,
                                        Part part = Part::kTraining);

}  // namespace weir::data
