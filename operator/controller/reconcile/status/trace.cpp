// SPDX-License-Identifier: Apache-2.0
// Wishes for a trace (annotation weir.dev/trace) that cannot be fulfilled. The others go to the
// coordinator with the answer to its next report.
#include "operator/api/names.h"
#include "operator/controller/reconcile/status/status.h"
#include "worker/base/utf8.h"
#include "worker/protocol/trace_request.h"

namespace weir::reconcile {
namespace {

std::string refusal(const View& view, const Draft& draft, const std::string& text) {
  const auto wanted = protocol::read_trace_request(text);
  if (!wanted) return wanted.error().message + ", found " + in_quotes(text);
  if (view.plan != nullptr && wanted->replica >= view.plan->replica_count()) {
    return "replica " + std::to_string(wanted->replica) + ": the plan has " +
           std::to_string(view.plan->replica_count());
  }
  const auto* ready = api::find_condition(draft.status.conditions, "Ready");
  if (ready != nullptr && ready->status == "True") return "";
  return "no steps are made now" + (ready == nullptr ? "" : " (" + ready->reason + ")");
}

}  // namespace

void show_trace(const View& view, Draft& draft) {
  const auto found = view.job().meta.annotations.find(api::kTrace);
  const std::string text = found == view.job().meta.annotations.end() ? "" : found->second;
  if (text == draft.adaptation.trace_wanted) return;
  draft.adaptation.trace_wanted = text;
  if (text.empty()) return;
  const std::string why = refusal(view, draft, text);
  if (why.empty()) return;
  draft.event("Warning", "TraceRefused", std::string(api::kTrace) + ": " + why, "Report");
}

}  // namespace weir::reconcile
