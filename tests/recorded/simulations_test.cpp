// SPDX-License-Identifier: Apache-2.0
// What `weir-operator simulate --json` prints for the schedules of
// tests/worker/schedule/plans_by_name.h, and for plans of `plan --json`.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/recorded/commands.h"
#include "tests/recorded/recording.h"
#include "tests/worker/schedule/plans_by_name.h"
#include "worker/base/digest.h"

namespace weir::recorded {
namespace simulations_test {

// tests/data/recorded/chains/<name>.txt: four layers, milliseconds; at 1e9 bytes per second each
// boundary takes `link` ms.
struct Chain {
  const char* name;
  std::vector<double> forward, backward;
  double link;
};
const Chain kChains[] = {{"equal-0.5", {1, 1, 1, 1}, {2, 2, 2, 2}, 0.5},
                         {"equal-1.5", {1, 1, 1, 1}, {2, 2, 2, 2}, 1.5},
                         {"equal-3", {1, 1, 1, 1}, {2, 2, 2, 2}, 3},
                         {"uneven-2", {1, 1.5, 0.8, 1.2}, {2, 3, 1.6, 2.4}, 2}};
constexpr int kMicroBatches = 32;
const char* const kNames[] = {"1F1B",   "k2",       "k3",   "k4",  "k8",  "GPipe",
                              "slack2", "slack3",   "lean", "pm",  "opt", "hint2",
                              "hint3",  "hintlean", "hk2",  "hk3", "hk4"};

std::string simulate_chain(const Chain& chain, const std::string& name, const std::string& more) {
  const auto model =
      schedule::test::model_of(chain.forward, chain.backward, {chain.link, chain.link, chain.link});
  const schedule::Schedule named = schedule::test::schedule_named(name, kMicroBatches, model);
  std::string caps;
  for (const int cap : named.caps) caps += (caps.empty() ? "" : ",") + std::to_string(cap);
  return std::string("simulate --json --profile tests/data/recorded/chains/") + chain.name +
         ".txt --cluster 4xA@1e9 --plan 0-0,1-1,2-2,3-3 --micro-batches " +
         std::to_string(kMicroBatches) + " --caps " + caps + " --dispatch " +
         (named.dispatch == schedule::Dispatch::kHint ? "hint" : "strict") + more;
}

TEST(RecordedSimulations, AreTheSame) {
  Table table("simulations.txt", "SHA-256 of what weir-operator prints, schedules by name.");
  if (const auto why = table.elsewhere()) GTEST_SKIP() << *why;
  for (const Chain& chain : kChains) {
    for (const char* name : kNames) {
      const std::string command = simulate_chain(chain, name, "");
      table.check(std::string(name) + ": " + command, sha256_hex(told_by(command)),
                  "weir-operator " + command);
    }
  }
  for (const char* name : {"1F1B", "k3", "hk3"}) {
    const std::string command = simulate_chain(kChains[1], name, " --steps 3 --share s1:s2=0.4");
    table.check(std::string(name) + ": " + command, sha256_hex(told_by(command)),
                "weir-operator " + command);
  }
  table.finish();
}

// With ranks that share a stage, with replicas, in another order of layers than the file's.
TEST(RecordedSimulations, OfPlansThatThePlannerMadeAreTheSame) {
  if (kSanitized) GTEST_SKIP() << "a minute under sanitizers";
  Table table("simulations-planned.txt", "SHA-256 of what weir-operator prints, planned first.");
  if (const auto why = table.elsewhere()) GTEST_SKIP() << *why;
  for (const char* graph : {"alexnet", "vgg16", "resnet18", "gnmt"}) {
    const std::string inputs = std::string(" --profile tests/data/planner/pipedream/") + graph +
                               ".txt --cluster 4xA:32e9@1e9+4xB:16e9/2";
    for (const char* options : {"", " --objective async", " --data-parallel 2"}) {
      const std::string plan = "plan --json" + inputs + options + " --k-max 4";
      const std::string simulate = "simulate --json" + inputs + " --plan -";
      table.check(plan + " | " + simulate, sha256_hex(told_by(simulate, told_by(plan))),
                  "weir-operator " + plan + " | weir-operator " + simulate);
    }
  }
  table.finish();
}

}  // namespace simulations_test
}  // namespace weir::recorded
