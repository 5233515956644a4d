// SPDX-License-Identifier: Apache-2.0
// Shows a plan in status. Private to this room.
#pragma once

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

// Writes k, batches and stages of this plan into status.plan, but not its revision.
void show_plan(const View& view, Draft& draft, const schedule::Plan& plan);
// Text about idle workers, e.g. "2 of 10 workers have no stage (x-w-8, x-w-9): the model has 8
// layers"; "" = there are none.
std::string idle_text(const View& view, const schedule::Plan& plan);

}  // namespace weir::reconcile
