// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/remedies.h"

#include <gtest/gtest.h>

namespace weir::explain {
namespace remedies_test {

Causes slow_link() {
  return {.main = Cause{.kind = Kind::kLink, .place = "n1 <-> n2", .text = {}, .seconds = 0.321},
          .also = {{.kind = Kind::kDevice, .place = "gpt-w-3", .text = {}, .seconds = 0.001}}};
}

std::vector<std::string> told(const std::vector<Remedy>& remedies) {
  std::vector<std::string> texts;
  for (const Remedy& remedy : remedies) texts.push_back(remedy.text + ": " + remedy.answer);
  return texts;
}

TEST(Remedies, BestFirstWithTheAnswerOfTheOperator) {
  const Causes causes = slow_link();
  RemedyInput input{.causes = causes, .step_seconds = 1.5};
  input.order = Offer{"k=2 caps 4,2 Hint", 0.25, "waits: seen once, needs a second evaluation"};
  input.prospects = {.even_cut_saves = 0.009, .twice_saves = 0.05};
  input.global_batch = 64;

  const auto remedies = remedies_of(input);

  EXPECT_EQ(told(remedies),
            (std::vector<std::string>{
                "link n1 <-> n2 at its usual rate: needs the other tenant",
                "order k=2 caps 4,2 Hint: operator: waits: seen once, needs a second evaluation",
                "batch.globalBatchSize 128, half of such a step: no: it changes what is trained",
                "an even cut of the layers, at best: operator: no, below regroup.minGainPercent "
                "(10 %)"}));
  EXPECT_NEAR(remedies[1].saves_seconds, 0.3, 1e-9);
}

TEST(Remedies, SayThatAdaptationIsOffOrOnlyProposes) {
  const Causes causes;
  RemedyInput input{.causes = causes, .step_seconds = 1.5};
  input.cut = Offer{"4->3 stages", 0.5, "costs 3.0 s once", true};
  EXPECT_EQ(told(remedies_of(input)).at(0), "4->3 stages: operator: costs 3.0 s once");
  input.mode = api::AdaptationMode::kObserve;
  EXPECT_EQ(told(remedies_of(input)).at(0),
            "4->3 stages: operator: only proposes it (adaptation.mode is Observe)");
  input.cut->acts = false;
  input.cut->answer = "below the least gain of 60.0 %";
  EXPECT_EQ(told(remedies_of(input)).at(0),
            "4->3 stages: operator: below the least gain of 60.0 %");
  input.mode = api::AdaptationMode::kOff;
  EXPECT_EQ(told(remedies_of(input)).at(0), "4->3 stages: no: adaptation is off");
}

TEST(Remedies, NameCodecsAndWhyTheOperatorDoesNotUseThem) {
  const Causes causes;
  RemedyInput input{.causes = causes, .step_seconds = 3.44};
  input.codecs = Offer{"compress link 1-2:Int8", 2.07, "no: adaptation.compress.enabled is false"};

  const auto remedies = remedies_of(input);

  EXPECT_EQ(told(remedies).at(0),
            "compress link 1-2:Int8: operator: no: adaptation.compress.enabled is false");
  EXPECT_NEAR(input.step_seconds - remedies[0].saves_seconds, 1.12, 0.01);
}

TEST(Remedies, AreOnlyThoseThatAreWorthALine) {
  const Causes causes;
  RemedyInput input{.causes = causes, .step_seconds = 1.5};
  input.prospects = {.even_cut_saves = 0.007, .twice_saves = 0};
  EXPECT_TRUE(remedies_of(input).empty());
}

TEST(Remedies, ProspectsAreOfEqualStagesAndOfHalfOfTwoSteps) {
  using namespace std::chrono_literals;
  schedule::Plan plan;
  plan.stages = {{0, 0}, {1, 1}};
  plan.micro_batches = {4};
  plan.ranks = {{.pod = "a", .stage = 0}, {.pod = "b", .stage = 1}};
  costing::Conditions now;
  now.slowness = {{"a", {1, 1}}, {"b", {2, 2}}};
  std::vector<costing::Pipeline> pipelines(1);
  pipelines[0].model.stages = {{10ms, 20ms}, {30ms, 60ms}};
  const StepOf slowest = [](const costing::Conditions& met) {
    return std::max(0.030 * met.slowness.at("a").first, 0.045 * met.slowness.at("b").first);
  };

  const Prospects prospects = prospects_of(plan, now, pipelines, slowest, 0.16);

  EXPECT_NEAR(prospects.even_cut_saves, 0.09 - 0.06, 1e-9);
  EXPECT_NEAR(prospects.twice_saves, 0.09 - 0.08, 1e-9);
  EXPECT_EQ(prospects_of(plan, now, pipelines, slowest, 0).twice_saves, 0);
}

}  // namespace remedies_test
}  // namespace weir::explain
