// SPDX-License-Identifier: Apache-2.0
// What users see of a job. Private to the rooms of reconcile.
#pragma once

#include "operator/controller/reconcile/draft.h"
#include "operator/controller/reconcile/view.h"

namespace weir::reconcile {

void show_acceptance(Draft& draft);
void show_conditions(const View& view, Draft& draft);
void show_network(const View& view, Draft& draft);
void show_report(const View& view, Draft& draft);

}  // namespace weir::reconcile
