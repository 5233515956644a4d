// SPDX-License-Identifier: Apache-2.0
// What `weir-operator plan --json` prints for the graphs and profiles of tests/data/planner.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/recorded/commands.h"
#include "tests/recorded/recording.h"
#include "worker/base/digest.h"

namespace weir::recorded {
namespace plans_test {

using Words = std::vector<std::string>;

constexpr auto kSkipped = "minutes under sanitizers";

// Two mixes of classes.
const Words kClusters{"8xA:32e9@1e9", "4xA:32e9@1e9+4xB:16e9/2"};

const Words kAllOptions{"",
                        " --objective async",
                        " --keep-order",
                        " --objective async --keep-order",
                        " --compat pipedream",
                        " --compat pipedream-no-transfer",
                        " --compat sync0 --k-max 1",
                        " --compat sync0 --k-max 3",
                        " --compat dapple --global-batch 32 --micro-batch 1",
                        " --data-parallel 2 --caps both",
                        " --stages 3 --use-all-devices --k-max 2",
                        " --compare even",
                        " --compare pipedream --objective async",
                        " --compare dapple-formula"};

std::string graph(const std::string& name) {
  return "plan --json --profile tests/data/planner/pipedream/" + name + ".txt";
}

void check(Table& table, const std::string& command) {
  table.check(command, sha256_hex(told_by(command)), "weir-operator " + command);
}

TEST(RecordedPlans, OfGraphsAreTheSame) {
  if (kSanitized) GTEST_SKIP() << kSkipped;
  Table table("plans-graphs.txt", "SHA-256 of what weir-operator prints, PipeDream's graphs.");
  if (const auto why = table.elsewhere()) GTEST_SKIP() << *why;
  for (const char* name : {"alexnet", "vgg16", "squeezenet1_0", "resnet18", "resnet50", "gnmt",
                           "densenet121", "inception_v3"}) {
    for (const std::string& cluster : kClusters) {
      for (const std::string& options : kAllOptions) {
        check(table, graph(name) + " --cluster " + cluster + options);
      }
    }
  }
  for (const char* name : {"alexnet", "vgg16", "resnet50"}) {  // takes seconds on others
    check(table, graph(name) + " --cluster " + kClusters[1] + " --global-batch 64");
  }
  // Not exact: above so many ideals there is a gap.
  for (const char* options : {" --max-ideals 200", " --max-ideals 200 --objective async"}) {
    check(table, graph("densenet121") + " --cluster " + kClusters[1] + options);
  }
  table.finish();
}

TEST(RecordedPlans, OfSailorsProfilesAreTheSame) {
  if (kSanitized) GTEST_SKIP() << kSkipped;
  Table table("plans-sailor.txt", "SHA-256 of what weir-operator prints, Sailor's profiles.");
  if (const auto why = table.elsewhere()) GTEST_SKIP() << *why;
  const std::string folder = "tests/data/planner/sailor/";
  const auto profile = [&](const std::string& model, const std::string& prefix,
                           const std::string& fast, const std::string& slow) {
    return "plan --json --profile sailor:" + fast + "=" + folder + prefix + fast + ".json," + slow +
           "=" + folder + prefix + slow + ".json --sailor-info " + folder +
           "llm_info.json --sailor-model " + model;
  };
  const std::string data_center = " --cluster 4xA100-40:40e9@1e10+4xV100-16:16e9";
  for (const std::string& options : kAllOptions) {
    check(table, profile("OPT-350", "opt-350m-", "A100-40", "V100-16") + data_center + options);
  }
  for (const char* options : {"", " --objective async", " --keep-order", " --ranks-per-stage 1"}) {
    check(table, profile("OPT-350", "opt-350m-", "RTX-3090", "RTX-2080") +
                     " --cluster 4xRTX-3090:24e9@1e9+4xRTX-2080:8e9" + options);
    check(table,
          profile("GPT-Neo-2.7", "gpt-neo-2.7b-", "A100-40", "V100-16") + data_center + options);
  }
  table.finish();
}

}  // namespace plans_test
}  // namespace weir::recorded
