// SPDX-License-Identifier: Apache-2.0
// Where a step goes, what makes it slow and what would help, in status.
#include <cmath>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/status/status.h"
#include "worker/base/text.h"

namespace weir::reconcile {
namespace {

constexpr int kDigits = 4;  // of seconds

// Offers of tiers that were found for the plan in force.
std::optional<explain::Offer> offer_of(const gate::Considered& found, const View& view) {
  if (found.revision != view.plan->revision) return std::nullopt;
  return explain::Offer{found.what, found.gain, found.answer, found.acts};
}

void show_causes(const View& view, const Draft& draft, api::Performance& performance) {
  const auto& network = draft.adaptation.network;
  if (const auto& main = network.causes.main) {
    performance.cause = explain::name(main->kind);
    performance.cause_text = main->text;
    if (main->together) performance.cause_text += "; together with what is seen besides";
    performance.cause_seconds = number(main->seconds, kDigits);
  }
  for (const explain::Cause& cause : network.causes.also) {
    performance.also_seen.push_back(
        {explain::name(cause.kind), cause.text, number(cause.seconds, kDigits)});
  }
  const api::AdaptationSpec& tiers = view.spec().adaptation;
  const adaptation::Memory& memory = draft.adaptation.memory;
  const bool off = tiers.mode == api::AdaptationMode::kOff;
  explain::RemedyInput input{.causes = network.causes,
                             .prospects = network.prospects,
                             .step_seconds = network.waterfall->step_seconds};
  input.order = offer_of(off ? network.order.value_or(gate::Considered{}) : memory.order, view);
  input.codecs = offer_of(off ? network.codecs.value_or(gate::Considered{}) : memory.codecs, view);
  input.cut = offer_of(memory.cut, view);
  input.mode = tiers.mode.value();
  input.regroups = tiers.regroup.enabled;
  input.least_regroup_percent = tiers.regroup.min_gain_percent;
  input.global_batch = view.spec().global_batch;
  for (const explain::Remedy& remedy : explain::remedies_of(input)) {
    performance.remedies.push_back({remedy.text,
                                    number(input.step_seconds - remedy.saves_seconds, kDigits),
                                    number(remedy.saves_seconds, kDigits), remedy.answer});
  }
  if (performance.remedies.empty()) return;
  performance.remedy = performance.remedies.front().text;
  performance.remedy_seconds = performance.remedies.front().step_seconds;
}

}  // namespace

void show_performance(const View& view, const Draft& draft, api::ReportStatus& shown) {
  const auto& network = draft.adaptation.network;
  if (!network.waterfall || view.plan == nullptr) return;
  api::Performance& performance = shown.performance;
  constexpr double kTenths = 10'000;  // of a millisecond
  const auto tenths = [](double seconds) { return std::llround(kTenths * seconds); };
  const std::int64_t whole = tenths(network.waterfall->step_seconds);
  performance.step_milliseconds = number(static_cast<double>(whole) / 10, 1);
  performance.steps = network.steps;
  performance.slowest_stage = network.waterfall->slowest_stage;
  performance.slowest_node = network.slowest_node;
  std::int64_t rest = whole;  // so that what is shown adds up, too
  for (std::size_t i = 0; i < explain::kLines; ++i) {
    const bool last = i + 1 == explain::kLines;
    const std::int64_t own = last ? rest : tenths(network.waterfall->seconds[i]);
    rest -= own;
    performance.lines.push_back({explain::kLineNames[i], number(static_cast<double>(own) / 10, 1)});
  }
  performance.replica = network.replica;
  for (std::size_t s = 0; s < network.ranks.size(); ++s) {
    const explain::RankShares shares = explain::shares_of(network.ranks[s]);
    performance.ranks.push_back({static_cast<int>(s), shares.busy, shares.late, shares.link,
                                 shares.full, shares.replicas, shares.update, shares.throttled});
  }
  show_causes(view, draft, performance);
}

}  // namespace weir::reconcile
