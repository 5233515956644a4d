// SPDX-License-Identifier: Apache-2.0
// Tier replace: a worker is made again on another node if its node stays slow and no other rank map
// helps. Training goes on from the checkpoint, or a spare takes the place at once.
#pragma once

#include <optional>

#include "operator/adaptation/costing/cost.h"
#include "operator/adaptation/gate/proposal.h"
#include "operator/facts/facts.h"

namespace weir::replace {

struct Memory {
  gate::Clock clock;
  gate::Record record;
};

// Moves a worker away from the slowest node, if that passes the gate. The caller starts the clock.
std::optional<gate::Proposal> propose(const facts::Facts& facts, const costing::Costing& costing,
                                      const gate::Moment& moment, bool asked, Memory& memory);

}  // namespace weir::replace
