// SPDX-License-Identifier: Apache-2.0
// Training data: which tokens belong to sample i of step t. Pure function of (seed, step, index): a
// restart or another cut reads the same data. Thread-safe after opening.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "worker/base/result.h"

namespace weir::data {

// Of the rule by which (seed, step, index) name a sample: another rule has another name.
constexpr const char* kOrder = "1";

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Sample `index` (0 .. global batch-1) of a step: `sequence` inputs and the targets one token
  // later. kGone: the data has changed since it was opened, or cannot be read any more; names it.
  virtual Status sample(std::int64_t step, int index, int global_batch,
                        std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const = 0;
  virtual std::string description() const = 0;
  // The same text for the same data wherever it lies: "4000 bytes, sha256:0123456789abcdef".
  virtual std::string content() const = 0;
};

// Bytes of a file as tokens, windows of `sequence`+1 bytes, shuffled anew each
// epoch. The file may grow while it is open, but what was there must stay. kNotFound or kInvalid
// names the file and the reason (missing, unreadable, shorter than one window).
Result<std::unique_ptr<Dataset>> open_token_file(const std::string& path, int sequence,
                                                 std::uint64_t seed);
// A seeded language that can be learnt: loss falls clearly below ln(vocabulary). Both parts are the
// same language; no sample of one is of the other.
enum class Part : unsigned char { kTraining, kValidation };
std::unique_ptr<Dataset> make_synthetic(int vocabulary, int sequence, std::uint64_t seed,
                                        Part part = Part::kTraining);

}  // namespace weir::data
