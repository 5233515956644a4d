// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/reconcile/pass/draft.h"

namespace weir::reconcile {

void refuse_job(const View& view, Draft& draft, const std::string& reason,
                const std::string& message) {
  const auto* before = api::find_condition(view.job().status.conditions, "Accepted");
  if (before == nullptr || before->message != message) {
    draft.event("Warning", "InvalidSpec", reason + ": " + message, "Validate");
  }
  draft.refusal = {reason, message};
}

}  // namespace weir::reconcile
