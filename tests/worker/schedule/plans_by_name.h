// SPDX-License-Identifier: Apache-2.0
// Simulated steps by the names that the tables of figures use: 1F1B, block (1F1B with blocking
// sends), kN, families with one k, slackD, lean, pm, opt, and with Hint: hintD, hintlean, hkN, hzbD
// (slack-D caps, split backward). With +same or +x0 behind a name backwards are split, and stages
// hold as many micro-batches as the cap, or as the cap of stage 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/worker/schedule/baselines.h"
#include "worker/base/check.h"
#include "worker/schedule/families.h"
#include "worker/schedule/search_caps.h"
#include "worker/schedule/search_split.h"
#include "worker/schedule/simulator.h"

namespace weir::schedule::test {

inline Schedule with_caps(std::vector<int> caps, Dispatch dispatch) {
  Schedule schedule;
  schedule.dispatch = dispatch;
  schedule.k = k_of_caps(caps);
  schedule.caps = std::move(caps);
  return schedule;
}

// Caps and dispatch of a name; lean, pm and opt look at the model.
inline Schedule schedule_named(const std::string& name, int micro_batches,
                               const PipelineModel& model) {
  const int S = static_cast<int>(model.stages.size()), M = micro_batches;
  const auto number = [&](std::size_t prefix) { return std::stoi(name.substr(prefix)); };
  const auto strict = [](std::vector<int> caps) {
    return with_caps(std::move(caps), Dispatch::kStrict);
  };
  const auto hint = [](std::vector<int> caps) {
    return with_caps(std::move(caps), Dispatch::kHint);
  };
  if (const auto plus = name.find('+'); plus != std::string::npos) {
    const Schedule whole = schedule_named(name.substr(0, plus), micro_batches, model);
    std::vector<int> held = whole.caps;
    if (name.substr(plus) == "+x0") held.assign(held.size(), held.front());
    return with_split(whole, std::move(held), Dispatch::kHint, micro_batches, model);
  }
  if (name == "1F1B" || name == "block") return strict(kfkb_caps(S, M, 1));
  if (const std::optional<Family> family = family_of(name); family && rules_of(*family).only_k) {
    return strict(rules_of(*family).caps(S, M, rules_of(*family).only_k(M)));
  }
  if (name == "lean") return strict(lean_caps(model, M));
  if (name == "pm") return strict(pipemorph_caps(model, M));
  if (name == "opt") return hint(opt_caps(model, M, std::vector<int>(model.stages.size(), M)));
  if (name == "hintlean") return hint(lean_caps(model, M));
  if (name.starts_with("hint")) return hint(slack_caps(S, M, number(4)));
  if (name.starts_with("hk")) return hint(kfkb_caps(S, M, number(2)));
  if (name.starts_with("slack")) return strict(slack_caps(S, M, number(5)));
  WEIR_CHECK(name.starts_with("k"), "a known name");
  return strict(kfkb_caps(S, M, number(1)));
}

inline std::optional<Timeline> simulate_named(const std::string& name, int micro_batches,
                                              const PipelineModel& whole) {
  const bool split_backward = name.starts_with("hzb");
  if (!split_backward && name != "block") {
    return simulate(schedule_named(name, micro_batches, whole), micro_batches, whole);
  }
  PipelineModel model = whole;
  model.window = 0;
  if (!split_backward) {
    return simulate(schedule_named(name, micro_batches, model), micro_batches, model);
  }
  model.window = whole.window;
  // B = W = b/2, activations as many as on stage 0
  Schedule split = with_caps(
      slack_caps(static_cast<int>(model.stages.size()), micro_batches, std::stoi(name.substr(3))),
      Dispatch::kHint);
  split.split = Split{.held = std::vector<int>(split.caps.size(), split.caps.front()),
                      .postponed = std::vector<int>(split.caps.size(), 0)};
  for (StageTime& stage : model.stages) {
    stage.backward_input = stage.backward_weights = stage.backward / 2;
  }
  return simulate(split, micro_batches, model);
}

// Times in units of one forward, 1 ms.
inline std::chrono::nanoseconds units(double value) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(value * 1e6 + 0.5));
}
inline PipelineModel model_of(const std::vector<double>& f, const std::vector<double>& b,
                              const std::vector<double>& c, bool latency = false) {
  PipelineModel model;
  for (std::size_t s = 0; s < f.size(); ++s) model.stages.push_back({units(f[s]), units(b[s])});
  for (const double time : c) {
    LinkModel link;
    (latency ? link.latency : link.transfer) = units(time);
    model.forward.push_back(link);
  }
  model.backward = model.forward;
  return model;
}
// f = 1, b = 2 on every stage.
inline PipelineModel equal_model(int stages, const std::vector<double>& c, bool latency = false) {
  const auto count = static_cast<std::size_t>(stages);
  return model_of(std::vector<double>(count, 1), std::vector<double>(count, 2), c, latency);
}
inline double step_named(const std::string& name, int micro_batches, const PipelineModel& model) {
  const auto timeline = simulate_named(name, micro_batches, model);
  return timeline ? static_cast<double>(timeline->step.count()) / 1e6 : -1;
}

}  // namespace weir::schedule::test
