// SPDX-License-Identifier: Apache-2.0
// Restarts of the whole job. Private to this room.
#pragma once

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

// Whether the pod is older than the last restart, and that had scope Job. Such a pod is deleted,
// and no plan may use it.
bool replaced_by_restart(const Draft& draft, const api::Pod& pod);

}  // namespace weir::reconcile
