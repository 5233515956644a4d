// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/remedies.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::explain {
namespace {

constexpr double kWorthALine = 0.005;  // of a step
constexpr std::size_t kMostRemedies = 6;

// The operator does this about a change that a tier knows.
std::string answer_of(api::AdaptationMode mode, bool acts, const std::string& answer) {
  switch (mode) {
    case api::AdaptationMode::kOff:
      return "no: adaptation is off";
    case api::AdaptationMode::kObserve:
      if (acts) return "operator: only proposes it (adaptation.mode is Observe)";
      break;
    case api::AdaptationMode::kAuto:
      break;
  }
  return "operator: " + answer;
}

// The remedy of a cause that somebody outside of the job can take away: its text before and behind
// the place, and what it needs.
struct Words {
  Kind kind;
  const char *before, *behind, *needs;
};
constexpr std::array kWithout{
    Words{Kind::kLink, "link ", " at its usual rate", "the other tenant"},
    Words{Kind::kPort, "port of node ", " at its usual rate", "the other tenant"},
    Words{Kind::kSums, "link ", " of the sums at its usual rate", "the other tenant"},
    Words{Kind::kDevice, "worker ", " at its usual speed", "its node"},
    Words{Kind::kDevices, "all devices", " at their usual speed", "their nodes"},
    Words{Kind::kData, "worker ", " without waiting for data", "faster storage"},
    Words{Kind::kPauses, "worker ", " without pauses", "its CPU"},
    Words{Kind::kSave, "worker ", " copying its state as fast as most", "its node"},
    Words{Kind::kLimit, "worker ", " unthrottled", "a higher CPU limit"},
    Words{Kind::kQueue, "worker ", " with free processors", "a higher CPU request"}};
static_assert(kWithout.size() + 2 == kKindNames.size(), "all but Order and FillAndDrain");

std::optional<Remedy> without_cause(const Cause& cause) {
  const auto* words = std::ranges::find(kWithout, cause.kind, &Words::kind);
  if (words == kWithout.end()) return std::nullopt;
  return Remedy{.text = words->before + cause.place + words->behind,
                .saves_seconds = cause.seconds,
                .answer = std::string("needs ") + words->needs};
}

double saved_by(double gain, double step_seconds) {
  return gain > -1 ? step_seconds * (1 - 1 / (1 + gain)) : 0;
}

// The best change of a tier; nothing if it has none.
std::optional<Remedy> offered(const RemedyInput& input, const std::optional<Offer>& offer,
                              const std::string& kind) {
  if (!offer || offer->what.empty()) return std::nullopt;
  return Remedy{.text = kind + offer->what,
                .saves_seconds = saved_by(offer->gain, input.step_seconds),
                .answer = answer_of(input.mode, offer->acts, offer->answer)};
}

Remedy cut_of(const RemedyInput& input) {
  if (auto cut = offered(input, input.cut, "")) return *std::move(cut);
  const double saves = input.prospects.even_cut_saves;
  const double gain = input.step_seconds / (input.step_seconds - saves) - 1;
  std::string answer = "looks for one if links or devices lose time";
  if (!input.regroups) answer = "no: adaptation.regroup is off";
  if (gain * 100 < input.least_regroup_percent) {
    answer =
        "no, below regroup.minGainPercent (" + std::to_string(input.least_regroup_percent) + " %)";
  }
  return {.text = "an even cut of the layers, at best",
          .saves_seconds = saves,
          .answer = answer_of(input.mode, false, answer)};
}

}  // namespace

Prospects prospects_of(const schedule::Plan& plan, const costing::Conditions& now,
                       const std::vector<costing::Pipeline>& pipelines, const StepOf& step_of,
                       double twice) {
  Prospects prospects;
  const double step = step_of(now);
  if (step <= 0) return prospects;
  if (twice > 0) prospects.twice_saves = std::max(0.0, step - twice / 2);
  costing::Conditions even = now;
  for (const auto& rank : plan.ranks) {
    const auto replica = static_cast<std::size_t>(rank.replica);
    const auto own = even.slowness.find(rank.pod);
    if (own == even.slowness.end() || replica >= pipelines.size()) continue;
    const auto& stages = pipelines[replica].model.stages;
    const auto seconds = [](const schedule::StageTime& stage) {
      return to_seconds(stage.forward + stage.backward);
    };
    double all = 0;
    for (const auto& stage : stages) all += seconds(stage);
    const double mine = seconds(stages[static_cast<std::size_t>(rank.stage)]);
    if (mine <= 0) continue;
    const double share = all / static_cast<double>(stages.size()) / mine;
    own->second = {own->second.first * share, own->second.second * share};
  }
  const double even_step = step_of(even);
  if (even_step > 0) prospects.even_cut_saves = std::max(0.0, step - even_step);
  return prospects;
}

std::vector<Remedy> remedies_of(const RemedyInput& input) {
  std::vector<Remedy> all;
  if (auto order = offered(input, input.order, "order ")) all.push_back(*std::move(order));
  if (auto codecs = offered(input, input.codecs, "")) all.push_back(*std::move(codecs));
  if (input.causes.main) {
    if (auto remedy = without_cause(*input.causes.main)) all.push_back(*std::move(remedy));
  }
  for (const Cause& cause : input.causes.also) {
    if (auto remedy = without_cause(cause)) all.push_back(*std::move(remedy));
  }
  all.push_back(cut_of(input));
  all.push_back({.text = "batch.globalBatchSize " + std::to_string(2 * input.global_batch) +
                         ", half of such a step",
                 .saves_seconds = input.prospects.twice_saves,
                 .answer = "no: it changes what is trained"});
  std::erase_if(all, [&](const Remedy& remedy) {
    return remedy.saves_seconds < kWorthALine * input.step_seconds ||
           remedy.saves_seconds >= input.step_seconds;
  });
  std::ranges::stable_sort(all, std::greater{}, &Remedy::saves_seconds);
  if (all.size() > kMostRemedies) all.resize(kMostRemedies);
  return all;
}

}  // namespace weir::explain
