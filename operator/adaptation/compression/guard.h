// SPDX-License-Identifier: Apache-2.0
// Watches what codecs do to training (operator/adaptation/compression/README.md "Guard"). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::compression {

// Validation losses since codecs came into force.
struct Validations {
  std::optional<double> raw;  // the last one before, or the first one with codecs
  std::int64_t step = -1;     // of the newest one
  int worse_in_row = 0;       // with codecs, above it by more than 1 %
};
// raw: no codec is in force.
void note(const std::optional<protocol::Validation>& newest, bool raw, Validations& validations);

// Training losses of the newest reports, oldest first, at most kLosses of each: with raw tensors,
// and with codecs since then. For jobs without validations.
inline constexpr std::size_t kLosses = 50;
struct Losses {
  std::deque<double> raw, coded;
  std::int64_t step = -1;  // of the newest one
};
void note(double loss, std::int64_t step, bool raw, Losses& losses);

// Why the codecs of the plan in force have to go, and finer ones instead.
struct Reverted {
  schedule::Codecs codecs;
  std::string why;
  bool for_good = false;  // no codec is tried until weir.dev/replan
};
// Nothing while the plan is raw, or has run too few steps. segment: of that plan, or null.
std::optional<Reverted> guard(const schedule::Plan& plan, int number_bytes,
                              const protocol::Segment* segment, const Validations& validations,
                              const Losses& losses = {});

}  // namespace weir::compression
