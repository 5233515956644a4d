// SPDX-License-Identifier: Apache-2.0
// A plan as status shows it. Private to this room.
#pragma once

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

// k, batches and stages of this plan into status.plan; not its revision.
void show_plan(Pass& pass, const schedule::Plan& plan);
// "2 of 10 workers have no stage (x-w-8, x-w-9): the model has 8 layers"; "" = all have one.
std::string idle_text(const Pass& pass, const schedule::Plan& plan);

}  // namespace weir::reconcile
