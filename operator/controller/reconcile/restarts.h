// SPDX-License-Identifier: Apache-2.0
// Pods that a restart of the whole job replaces. Private to this room.
#pragma once

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

// Of an older generation than a restart of scope Job: it is to go, and no plan may count on it.
bool replaced_by_restart(const Pass& pass, const api::Pod& pod);

}  // namespace weir::reconcile
