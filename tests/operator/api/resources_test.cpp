// SPDX-License-Identifier: Apache-2.0
#include "operator/api/resources.h"

#include <gtest/gtest.h>

namespace weir::api {
namespace resources_test {

TEST(Quantity, IsReadExactly) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "1"},        {"0.5", "500m"},   {"100m", "100m"},  {"2Gi", "2147483648"},
      {"1.5Ki", "1536"}, {"1e3", "1000"},   {"5M", "5000000"}, {"1E-3", "1m"},
      {"1u", "1m"},      {"1500m", "1500m"}};
  for (const auto& [text, want] : cases) {
    const auto value = read_quantity(text);
    ASSERT_TRUE(value.has_value()) << text;
    EXPECT_EQ(quantity_text(*value), want) << text;
  }
  for (const char* text : {"", "x", "1x", "1e", "1e99", ".", "12345678901234567"}) {
    EXPECT_FALSE(read_quantity(text).has_value()) << text;
  }
}

WorkerGroup group_of(const std::string& resources, const std::string& template_json = "") {
  return {.name = "gpu", .resources = resources, .template_json = template_json};
}

TEST(Quantity, IsRoundedUpToAThousandth) {
  EXPECT_EQ(quantity_text(*read_quantity("1n")), "1m");
  EXPECT_EQ(quantity_text(*read_quantity("1.0001")), "1001m");
  EXPECT_EQ(quantity_text(*read_quantity("1e+2")), "100");
  EXPECT_FALSE(read_quantity("1e+").has_value());
  EXPECT_FALSE(read_quantity("1ex").has_value());
  EXPECT_FALSE(read_quantity("1.2.3").has_value());
}

TEST(Requests, ALimitWithoutARequestCounts) {
  const auto requests = requests_of(group_of(
      R"({"limits": {"nvidia.com/gpu": 1, "memory": "2Gi"}, "requests": {"memory": "1Gi"}})"));

  ASSERT_TRUE(requests.has_value());
  EXPECT_EQ(quantity_text(requests->at("nvidia.com/gpu")), "1");
  EXPECT_EQ(quantity_text(requests->at("memory")), "1073741824");
  EXPECT_TRUE(requests_of(group_of(""))->empty());
  EXPECT_TRUE(requests_of(group_of("[1"))->empty());
  EXPECT_FALSE(requests_of(group_of(R"({"limits": {"cpu": "two"}})")).has_value());
}

TEST(Requests, TheTrainerOfTheTemplateWins) {
  const auto requests =
      requests_of(group_of(R"({"limits": {"cpu": 1}})", R"({"spec": {"containers": [
      {"name": "side", "resources": {"requests": {"cpu": 9}}},
      {"name": "trainer", "resources": {"requests": {"cpu": "500m"}}}]}})"));
  ASSERT_TRUE(requests.has_value());
  EXPECT_EQ(quantity_text(requests->at("cpu")), "500m");

  const auto without = requests_of(
      group_of(R"({"limits": {"cpu": 1}})", R"({"spec": {"containers": [{"name": "trainer"}]}})"));
  EXPECT_EQ(quantity_text(without->at("cpu")), "1") << "it says nothing of resources";
}

TEST(Tolerates, AsTheSchedulerDoes) {
  const std::vector<Taint> tainted = {{"gpu", "a100", "NoSchedule"}};
  const auto bears = [&](const std::string& tolerations) {
    WorkerGroup group;
    group.tolerations = tolerations;
    return tolerates(group, tainted);
  };
  EXPECT_FALSE(bears(""));
  EXPECT_TRUE(bears(R"([{"operator": "Exists"}])"));
  EXPECT_TRUE(bears(R"([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}])"));
  EXPECT_TRUE(bears(R"([{"key": "gpu", "value": "a100"}])"));
  EXPECT_FALSE(bears(R"([{"key": "gpu", "value": "v100"}])"));
  EXPECT_FALSE(bears(R"([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}])"));
  EXPECT_FALSE(bears(R"([{"key": "cpu", "operator": "Exists"}, 7])"));

  const WorkerGroup none;
  EXPECT_TRUE(tolerates(none, {})) << "nothing to bear";
  EXPECT_TRUE(tolerates(none, {{"gpu", "", "PreferNoSchedule"}})) << "a wish keeps no pod away";
}

TEST(Tolerates, TheTemplatesListReplacesTheGroups) {
  WorkerGroup group;
  group.tolerations = R"([{"operator": "Exists"}])";
  group.template_json = R"({"spec": {"tolerations": []}})";

  EXPECT_FALSE(tolerates(group, {{"gpu", "", "NoSchedule"}}));
}

TEST(NodeSelector, OfTheTemplateGoesOnTop) {
  WorkerGroup group;
  group.node_selector = {{"zone", "a"}, {"disk", "ssd"}};
  EXPECT_EQ(node_selector_of(group), group.node_selector);

  group.template_json = R"({"spec": {"nodeSelector": {"zone": "b", "rack": "7"}}})";

  EXPECT_EQ(node_selector_of(group),
            (std::map<std::string, std::string>{{"zone", "b"}, {"disk", "ssd"}, {"rack", "7"}}));
}

}  // namespace resources_test
}  // namespace weir::api
