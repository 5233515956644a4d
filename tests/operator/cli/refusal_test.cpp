// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/refusal.h"

#include <gtest/gtest.h>

namespace weir::cli {
namespace refusal_test {

const Attempt kGet{"why", "get", "pipelinejobs", "view", "demo", "gpt"};
const Attempt kList{"top", "list", "pipelinejobs", "view", "", ""};
const Attempt kPatch{"scale", "patch", "pipelinejobs", "edit", "demo", "gpt"};

kube::ApiError error(int status, const std::string& message) {
  return {.http_status = status, .message = message};
}

TEST(Refusal, NamesTheMissingRightAndTheRoleThatHasIt) {
  EXPECT_EQ(refusal_text(error(403, "forbidden"), kPatch),
            "scale needs \"patch pipelinejobs\" in namespace demo: ask for role edit");
  EXPECT_EQ(refusal_text(error(403, "forbidden"), kList),
            "top needs \"list pipelinejobs\" in all namespaces: ask for role view");
}

TEST(Refusal, TellsAMissingJobFromAMissingInstallation) {
  EXPECT_EQ(refusal_text(error(404, "pipelinejobs.weir.dev \"gpt\" not found"), kGet),
            "no PipelineJob gpt in namespace demo (kubectl get ppj -A lists all)");
  EXPECT_EQ(refusal_text(error(404, "HTTP 404 404 page not found"), kGet),
            "this cluster does not know PipelineJobs: Weir's chart is not installed");
}

TEST(Refusal, RepeatsTheServersWords) {
  auto invalid = error(422, "PipelineJob.weir.dev \"gpt\" is invalid");
  invalid.causes = {"spec: globalBatchSize must be divisible\x1b[2J"};
  EXPECT_EQ(refusal_text(invalid, kPatch),
            "scale gpt: the API server refuses: spec: globalBatchSize must be divisible [2J");
  EXPECT_EQ(refusal_text(error(0, "10.0.0.1:6443: connect: Connection refused"), kGet),
            "the API server gives no answer: 10.0.0.1:6443: connect: Connection refused");
  EXPECT_EQ(refusal_text(error(401, "Unauthorized"), kGet),
            "the API server does not accept these credentials (kubectl auth whoami): Unauthorized");
}

}  // namespace refusal_test
}  // namespace weir::cli
