// SPDX-License-Identifier: Apache-2.0
// The rules of each family of schedules. Pure. The order of ops follows from the caps:
// worker/schedule/README.md "Notation".
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

struct FamilyRules {
  Family family;
  const char* name;  // in spec.schedule.type and in plan documents
  // The only k of a replica with M micro-batches; null: every k from 1 to M is allowed.
  int (*only_k)(int micro_batches);
  std::vector<int> (*caps)(int stages, int micro_batches, int k);
  bool tuned;  // the operator may change k and caps while the job runs
};

std::span<const FamilyRules> families();  // in the order of Family
const FamilyRules& rules_of(Family family);
std::optional<Family> family_of(std::string_view name);

}  // namespace weir::schedule
