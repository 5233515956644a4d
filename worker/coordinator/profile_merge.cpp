// SPDX-License-Identifier: Apache-2.0
// Merges the profiles that ranks of different device classes have measured.
#include "worker/coordinator/startup.h"
#include "worker/protocol/profile.h"

namespace weir::coordinator {

Result<std::string> merge_profiles(const std::vector<std::string>& parts) {
  protocol::Profile merged;
  for (const auto& part : parts) {
    auto profile = protocol::decode_profile(part);
    if (!profile) return profile.error().with("measured profile");
    if (merged.layers.empty()) {
      merged = *std::move(profile);
      continue;
    }
    const auto joined = protocol::merge(merged, *profile);
    if (!joined) return joined.error().with("profiles of two device classes");
  }
  return protocol::encode_profile(merged);
}

}  // namespace weir::coordinator
