// SPDX-License-Identifier: Apache-2.0
// A change that a tier makes. reconcile turns it into a plan, or into a worker that is made again.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "operator/adaptation/gate/gate.h"
#include "worker/schedule/plan.h"

namespace weir::gate {

enum class Kind : unsigned char {
  kRetune,
  kMemoryGuard,   // lowers caps, because a device runs out of memory
  kShares,        // micro-batch shares, sync mode, or both
  kSpec,          // the same, because the spec demands it
  kCompress,      // coarser codecs of tensors between stages
  kDecompress,    // finer ones
  kRevertCodecs,  // the same, because the coarser ones did damage
  kRepartition,
  kRetry,  // of the previous cut
  kReplace,
  kRollback
};

struct WorkerToReplace {
  std::string pod;
};

struct Proposal {
  Kind kind = Kind::kRetune;
  schedule::Trigger trigger = schedule::Trigger::kRetune;
  Offer offer;
  std::string what;         // the change in a few words, for its outcome; may be empty
  std::string text;         // the change and its reason, for users
  double gain = 0;          // predicted, of throughput
  double move_seconds = 0;  // predicted time of the transfer of parameters
  std::variant<schedule::Plan, WorkerToReplace> change;
  bool judged = true;  // false: there is no way back, so its outcome is not checked
};

// The best change that a tier found when it last costed some, for users. revision: of the plan that
// was in force; 0 = none was costed yet.
struct Considered {
  std::uint32_t revision = 0;
  std::string what;    // "" = none is better than the plan in force
  double gain = 0;     // of throughput
  std::string answer;  // of the gate
  bool acts = false;   // the gate lets it pass
};

}  // namespace weir::gate
