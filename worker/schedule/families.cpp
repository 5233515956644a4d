// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/families.h"

#include "worker/base/check.h"
#include "worker/schedule/caps.h"

namespace weir::schedule {

std::span<const FamilyRules> families() {
  static constexpr FamilyRules kFamilies[] = {
      {Family::kKfkb, "KFKB", nullptr, kfkb_caps, true},
      {Family::kOneFOneB, "OneFOneB", [](int) { return 1; }, kfkb_caps, false},
      {Family::kGpipe, "GPipe", [](int micro_batches) { return micro_batches; }, kfkb_caps, false},
  };
  return kFamilies;
}

const FamilyRules& rules_of(Family family) {
  const auto index = static_cast<std::size_t>(family);
  WEIR_CHECK(index < families().size(), "every family has its rules");
  return families()[index];
}

std::optional<Family> family_of(std::string_view name) {
  for (const FamilyRules& rules : families()) {
    if (name == rules.name) return rules.family;
  }
  return std::nullopt;
}

const char* name(Family family) {
  return rules_of(family).name;
}

}  // namespace weir::schedule
