// SPDX-License-Identifier: Apache-2.0
// Templates that people wrote wrongly: each gets its reason, none an exception.
#include <gtest/gtest.h>

#include "operator/api/encode.h"

namespace weir::api {
namespace pod_template_test {

std::string refusal_of(const std::string& template_json, Code code = Code::kInvalid) {
  PipelineJob job;
  job.spec.worker_groups.push_back({.name = "gpu", .template_json = template_json});
  const auto manifest = encode_pod(job, {.group = "gpu"});
  if (manifest) return "accepted";
  EXPECT_EQ(manifest.error().code, code) << template_json;
  return manifest.error().message;
}
std::string refusal_of_spec(const std::string& spec, Code code = Code::kInvalid) {
  return refusal_of(R"({"spec": )" + spec + "}", code);
}

TEST(PodTemplate, ThatIsNoneIsRefused) {
  const std::string at = "workerGroups[gpu].template";
  EXPECT_EQ(refusal_of("[]"), at + ": not an object");
  EXPECT_EQ(refusal_of("{"), at + ": not an object");
  EXPECT_EQ(refusal_of(R"({"containers": []})"), at + ": unknown field containers");
  EXPECT_EQ(refusal_of(R"({"spec": null})"), at + ".spec: not an object");
  EXPECT_EQ(refusal_of(R"({"metadata": {"name": "mine"}})"),
            at + ".metadata.name: only labels and annotations may be set");
  EXPECT_EQ(refusal_of(R"({"metadata": {"labels": ["a"]}})"),
            at + ".metadata.labels: not an object");
}

TEST(PodTemplate, MayHaveTheNullTimeThatToolsPrint) {
  EXPECT_EQ(refusal_of(R"({"metadata": {"creationTimestamp": null},
                           "spec": {"containers": [{"name": "trainer", "image": "i"}]}})"),
            "accepted");
}

TEST(PodTemplate, ListsThatWeExtendMustBeLists) {
  const std::string at = "workerGroups[gpu].template.spec.";
  EXPECT_EQ(refusal_of_spec(R"({"containers": {}})"), at + "containers: not a list");
  EXPECT_EQ(refusal_of_spec(R"({"containers": ["trainer"]})"),
            at + "containers: an entry is not an object");
  EXPECT_EQ(refusal_of_spec(R"({"volumes": {}})"), at + "volumes: not a list");
  EXPECT_EQ(refusal_of_spec(R"({"schedulingGates": "mine"})"), at + "schedulingGates: not a list");
  for (const char* key : {"env", "volumeMounts", "ports"}) {
    EXPECT_EQ(refusal_of_spec(R"({"containers": [{"name": "trainer", ")" + std::string(key) +
                              "\": {}}]}"),
              at + "containers: " + key + " is not a list");
  }
}

TEST(PodTemplate, AffinityThatWeExtendMustHaveItsForm) {
  const std::string at = "workerGroups[gpu].template.spec.";
  EXPECT_EQ(refusal_of_spec(R"({"nodeSelector": []})"), at + "nodeSelector: not an object");
  EXPECT_EQ(refusal_of_spec(R"({"affinity": "near"})"), at + "affinity: not an object");
  EXPECT_EQ(refusal_of_spec(R"({"affinity": {"podAffinity": []}})"),
            at + "affinity.podAffinity: not an object");
  const std::string preferred = "preferredDuringSchedulingIgnoredDuringExecution";
  EXPECT_EQ(refusal_of_spec(R"({"affinity": {"podAffinity": {")" + preferred + "\": {}}}}"),
            at + "affinity.podAffinity." + preferred + ": not a list");
  EXPECT_EQ(refusal_of_spec(R"({"affinity": {"nodeAffinity": 1}})"),
            at + "affinity.nodeAffinity: not an object");

  const std::string required =
      "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
  const auto with_required = [](const std::string& value) {
    return R"({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": )" +
           value + "}}}";
  };
  EXPECT_EQ(refusal_of_spec(with_required("[]")), at + required + ": not an object");
  EXPECT_EQ(refusal_of_spec(with_required(R"({"nodeSelectorTerms": {}})")),
            at + required + ".nodeSelectorTerms: not a list");
  EXPECT_EQ(refusal_of_spec(with_required(R"({"nodeSelectorTerms": ["a"]})")),
            at + required + ".nodeSelectorTerms: an entry is not an object");
  EXPECT_EQ(refusal_of_spec(with_required(R"({"nodeSelectorTerms": [{"matchFields": "a"}]})")),
            at + required + ".nodeSelectorTerms: matchFields is not a list");
}

TEST(PodTemplate, WithContainersNeedsOneNamedTrainerWithAnImage) {
  EXPECT_EQ(refusal_of_spec(R"({"containers": [{"name": "main", "image": "i"}]})", Code::kNotFound),
            "workerGroups[gpu].template.spec.containers: none is named trainer");
  EXPECT_EQ(refusal_of_spec(R"({"containers": [{"name": "trainer"}]})"),
            "worker.image: missing, and the template of group gpu sets none");
}

}  // namespace pod_template_test
}  // namespace weir::api
