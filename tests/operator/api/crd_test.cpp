// SPDX-License-Identifier: Apache-2.0
// For each field of the CRD's spec with a plain value: the operator reads it, and running pods that
// were made with another value of it count as pods of another template. The variables of pods are
// those of the worker's options.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "operator/api/decode.h"
#include "operator/api/encode.h"

namespace weir::api {
namespace crd_test {

using nlohmann::json;

// Edits of these reach a running job in another way (crds/README.md "Edits"): a deadline is known
// to the operator too, and the profile matters before the first plan.
const std::set<std::string> kNotOfTheTemplate{"startupTimeoutSeconds", "progressDeadlineSeconds",
                                              "scheduling.timeoutSeconds", "model.profile.source",
                                              "model.profile.warmupSteps"};

json other_value(const YAML::Node& schema) {
  const auto type = schema["type"] ? schema["type"].as<std::string>() : "string";
  const bool has_default = schema["default"].IsDefined();
  if (type == "boolean") return !(has_default && schema["default"].as<bool>());
  if (type == "integer") {
    const auto least = schema["minimum"].as<std::int64_t>();
    return has_default && schema["default"].as<std::int64_t>() == least ? least + 1 : least;
  }
  for (const YAML::Node& value : schema["enum"]) {
    if (!has_default || value.as<std::string>() != schema["default"].as<std::string>()) {
      return value.as<std::string>();
    }
  }
  return schema["enum"].IsDefined() ? json() : json("2Gi");  // no other value; any text
}

using Visit = std::function<void(const std::string& path, const json& value)>;

void each_field(const YAML::Node& schema, const std::string& path, const Visit& visit) {
  for (const auto& property : schema["properties"]) {
    const auto name = property.first.as<std::string>();
    const std::string whole = path.empty() ? name : path + "." + name;
    const YAML::Node& field = property.second;
    const auto type = field["type"] ? field["type"].as<std::string>() : "string";
    if (type == "object") each_field(field, whole, visit);
    if (type == "object" || type == "array") continue;
    if (const json value = other_value(field); !value.is_null()) visit(whole, value);
  }
}

YAML::Node schema_of_the_spec() {
  const YAML::Node crd = YAML::LoadFile(WEIR_SOURCE_DIR "/crds/pipelinejobs.weir.dev.yaml");
  return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
}

void each_field(const Visit& visit) {
  each_field(schema_of_the_spec(), "", visit);
}

PipelineJob job_with(const std::string& path, const json& value) {
  json spec = json::parse(R"({"worker": {"image": "w:1"},
    "workerGroups": [{"name": "gpu", "count": 1}], "batch": {"globalBatchSize": 8},
    "checkpoint": {"path": "/ckpt"}})");
  std::string pointer = "/" + path;
  std::ranges::replace(pointer, '.', '/');
  if (!path.empty()) spec[json::json_pointer(pointer)] = value;
  const auto job = decode_job(json{
      {"metadata", {{"name", "gpt"}, {"namespace", "n"}, {"uid", "u"}}},
      {"spec", spec}}.dump());
  EXPECT_TRUE(job.ok()) << path;
  return *job;
}

std::string pod_of(const PipelineJob& job) {
  const auto pod = encode_pod(job, {.group = "gpu", .workers = 1});
  EXPECT_TRUE(pod.ok());
  return pod->json;
}

TEST(Crd, EveryFieldOfTheSpecIsRead) {
  const PipelineJob plain = job_with("", {});
  int fields = 0;
  each_field([&](const std::string& path, const json& value) {
    ++fields;
    EXPECT_FALSE(job_with(path, value).spec == plain.spec) << path << ": " << value;
  });
  EXPECT_GT(fields, 50);
}

// Admission then refuses others, as the worker's options do on a command line.
TEST(Crd, BoundsTheNetworkAndTheCodecs) {
  const YAML::Node spec = schema_of_the_spec()["properties"];
  const YAML::Node network = spec["network"]["properties"];
  EXPECT_EQ(network["connectionsPerLink"]["minimum"].as<int>(), 0);
  EXPECT_EQ(network["connectionsPerLink"]["maximum"].as<int>(), 16);
  const std::regex name(network["congestionControl"]["pattern"].as<std::string>());
  EXPECT_TRUE(std::regex_match("bbr", name));
  EXPECT_FALSE(std::regex_match("a b", name));
  EXPECT_EQ(network["congestionControl"]["maxLength"].as<int>(), 15);
  for (const char* kind : {"boundary", "bulk"}) {
    const YAML::Node dscp = network["dscp"]["properties"][kind];
    EXPECT_EQ(dscp["minimum"].as<int>(), 0) << kind;
    EXPECT_EQ(dscp["maximum"].as<int>(), 63) << kind;
  }
  const YAML::Node compress = spec["adaptation"]["properties"]["compress"]["properties"];
  EXPECT_EQ(compress["coarsest"]["enum"].as<std::vector<std::string>>(),
            (std::vector<std::string>{"BF16", "Int8", "Int6"}));
}

TEST(Crd, AFieldThatReachesPodsIsInTheHashOfTheTemplate) {
  const PipelineJob plain = job_with("", {});
  std::set<std::string> not_in_the_hash;
  each_field([&](const std::string& path, const json& value) {
    const PipelineJob job = job_with(path, value);
    if (pod_of(job) == pod_of(plain)) return;
    if (template_hash(job) == template_hash(plain)) not_in_the_hash.insert(path);
  });
  EXPECT_EQ(not_in_the_hash, kNotOfTheTemplate);
}

TEST(Crd, EveryVariableOfAPodIsAnOptionOfTheWorker) {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/data/recorded/options-worker.txt");
  const std::string help{std::istreambuf_iterator<char>(file), {}};
  each_field([&](const std::string& path, const json& value) {
    const json pod = json::parse(pod_of(job_with(path, value)));
    for (const json& variable : pod["spec"]["containers"][0]["env"]) {
      const auto name = variable["name"].get<std::string>();
      EXPECT_NE(help.find("Env:" + name + ")"), help.npos) << name;
    }
  });
}

}  // namespace crd_test
}  // namespace weir::api
