// SPDX-License-Identifier: Apache-2.0
// operator/planner/model/README.md "profile.json" (weir.dev/profile/v1) as text to a Model.
// Refuses with the name of the field and the reason.
#pragma once

#include <string_view>

#include "operator/planner/model/model.h"
#include "worker/base/result.h"

namespace weir::planner {

Result<Model> decode_profile(std::string_view json);

}  // namespace weir::planner
