// SPDX-License-Identifier: Apache-2.0
// Micro-batch shares and sync mode of a job as proposals.
#pragma once

#include <optional>
#include <string>

#include "operator/adaptation/gate/proposal.h"
#include "operator/adaptation/shares/policy.h"
#include "operator/facts/facts.h"

namespace weir::shares {

// When something was changed last: by retune, by regroup, by any tier.
struct Moments {
  gate::Clock retune, regroup;
  gate::Moment moment;
};

schedule::SyncPolicy first_sync(const api::JobSpec& spec, int replicas);
// An edited `sync` demands another plan, independent of measurements.
std::optional<gate::Proposal> follow_spec(const facts::Facts& facts, const State& state);
std::optional<gate::Proposal> propose(const facts::Facts& facts, const Moments& moments, bool asked,
                                      State& state);
// The slow replica of a job with several, with numbers; nothing = none is slow.
std::optional<std::string> straggler(const facts::Facts& facts);

}  // namespace weir::shares
