// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/gang/provider.h"

namespace weir::gang {
namespace gang_test {

using nlohmann::json;

api::PipelineJob plain() {
  api::PipelineJob job;
  job.meta.name = "gpt";
  job.meta.namespace_name = "team";
  job.meta.uid = "u-1";
  job.spec.worker_groups.push_back(
      {.name = "a", .count = 2, .resources = R"({"limits":{"nvidia.com/gpu":1,"cpu":"500m"}})"});
  job.spec.worker_groups.push_back(
      {.name = "b",
       .count = 1,
       .resources = R"({"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi","cpu":"1.5"}})"});
  return job;
}

TEST(Choose, AutoTakesWhatTheUserWrote) {
  api::PipelineJob job = plain();
  EXPECT_EQ(choose(job, "").provider, Provider::kNone);
  job.spec.scheduler_name = "volcano";
  EXPECT_EQ(choose(job, "").provider, Provider::kVolcano);
  job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  EXPECT_EQ(choose(job, "").provider, Provider::kKueue);
  EXPECT_EQ(choose(job, "None").provider, Provider::kNone) << "fixed for the job's life";
}

TEST(Choose, RefusesWhatIsNotBuilt) {
  for (const char* provider : {"Coscheduling", "KAI", "Native"}) {
    api::PipelineJob job = plain();
    job.spec.gang_provider = provider;
    const Choice choice = choose(job, "");
    ASSERT_TRUE(choice.refusal.has_value());
    EXPECT_EQ(choice.refusal->reason, "GangProviderUnavailable");
    EXPECT_NE(choice.refusal->message.find(provider), std::string::npos);
  }
  api::PipelineJob job = plain();
  job.spec.scheduler_name = "kai-scheduler";
  EXPECT_TRUE(choose(job, "").refusal.has_value());
}

TEST(Choose, KueueNeedsAQueueAndExcludesPinned) {
  api::PipelineJob job = plain();
  job.spec.gang_provider = "Kueue";
  EXPECT_EQ(choose(job, "").refusal->reason, "InvalidSpec");
  job.spec.gang_queue = "q";
  EXPECT_FALSE(choose(job, "").refusal.has_value());
  job.spec.placement_mode = "Pinned";
  EXPECT_EQ(choose(job, "").refusal->reason, "InvalidSpec");
}

TEST(Marks, OfKueueFormAPodGroup) {
  api::PipelineJob job = plain();
  job.meta.labels = {
      {"kueue.x-k8s.io/queue-name", "q"}, {"kueue.x-k8s.io/priority-class", "high"}, {"team", "x"}};

  const PodMarks got = marks(Provider::kKueue, job, "a", "gpt", 3);

  EXPECT_EQ(got.labels,
            (std::map<std::string, std::string>{{"kueue.x-k8s.io/queue-name", "q"},
                                                {"kueue.x-k8s.io/priority-class", "high"},
                                                {"kueue.x-k8s.io/pod-group-name", "gpt"}}));
  EXPECT_EQ(got.annotations.at("kueue.x-k8s.io/pod-group-total-count"), "3");
  EXPECT_EQ(got.annotations.at("kueue.x-k8s.io/role-hash"), "a");
  EXPECT_TRUE(got.scheduler_name.empty());
  EXPECT_FALSE(encode_object(Provider::kKueue, job, 1).has_value());
}

std::shared_ptr<api::Pod> pod_in(const std::string& group, const char* retriable = nullptr) {
  auto pod = std::make_shared<api::Pod>();
  if (!group.empty()) pod->meta.labels["kueue.x-k8s.io/pod-group-name"] = group;
  if (retriable != nullptr) pod->meta.annotations["kueue.x-k8s.io/retriable-in-group"] = retriable;
  return pod;
}

TEST(PodGroup, OfKueueLivesUntilItIsClosed) {
  const api::PipelineJob job = plain();
  EXPECT_EQ(pod_group_name(job, {}, 0), "gpt");
  EXPECT_EQ(pod_group_name(job, {}, 2), "gpt.2") << "all pods of the first one are gone";
  const Pods open{pod_in(""), pod_in("gpt"), pod_in("gpt", "true")};
  EXPECT_EQ(pod_group_name(job, open, 3), "gpt") << "a restart takes the places of those before";
  EXPECT_EQ(pod_to_close(open), open[1].get());
  const Pods closed{pod_in("gpt"), pod_in("gpt", "false")};
  EXPECT_EQ(pod_group_name(job, closed, 1), "gpt.1");
  EXPECT_EQ(pod_to_close(closed), nullptr);
  const Pods both{pod_in("gpt"), pod_in("gpt", "false"), pod_in("gpt.1")};
  EXPECT_EQ(pod_group_name(job, both, 2), "gpt.1");
  EXPECT_EQ(pod_to_close(both), both[2].get());
  EXPECT_EQ(json::parse(encode_close())["metadata"]["annotations"],
            (json{{"kueue.x-k8s.io/retriable-in-group", "false"}}));
}

TEST(PodGroup, OfVolcanoCountsMembersTasksAndResources) {
  api::PipelineJob job = plain();
  job.spec.gang_queue = "research";
  job.spec.worker.priority_class = "high";

  const json group = json::parse(encode_object(Provider::kVolcano, job, 2).value());

  EXPECT_EQ(group["apiVersion"], "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(group["metadata"]["name"], "gpt");
  EXPECT_EQ(group["metadata"]["ownerReferences"][0]["uid"], "u-1");
  const json& spec = group["spec"];
  EXPECT_EQ(spec["minMember"], 6);
  EXPECT_EQ(spec["minTaskMember"], (json{{"a", 4}, {"b", 2}}));
  EXPECT_EQ(spec["queue"], "research");
  EXPECT_EQ(spec["priorityClassName"], "high");
  EXPECT_EQ(spec["minResources"],
            (json{{"nvidia.com/gpu", "4"}, {"cpu", "5"}, {"memory", "2147483648"}}));
  const PodMarks got = marks(Provider::kVolcano, job, "a", "", 6);
  EXPECT_EQ(got.annotations.at("scheduling.k8s.io/group-name"), "gpt");
  EXPECT_EQ(got.annotations.at("volcano.sh/task-spec"), "a");
  EXPECT_EQ(got.scheduler_name, "volcano");
}

TEST(PodGroup, TheTemplatesResourcesWinAndUnreadableOnesAreLeftOut) {
  api::PipelineJob job = plain();
  job.spec.worker_groups.resize(1);
  job.spec.worker_groups[0].template_json =
      R"({"spec":{"containers":[{"name":"trainer","resources":{"limits":{"cpu":"3"}}}]}})";
  EXPECT_EQ(json::parse(*encode_object(Provider::kVolcano, job, 1))["spec"]["minResources"],
            (json{{"cpu", "6"}}));
  job.spec.worker_groups[0].template_json.clear();
  job.spec.worker_groups[0].resources = R"({"limits":{"cpu":"many"}})";
  EXPECT_FALSE(
      json::parse(*encode_object(Provider::kVolcano, job, 1))["spec"].contains("minResources"));
}

}  // namespace gang_test
}  // namespace weir::gang
