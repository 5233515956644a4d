// SPDX-License-Identifier: Apache-2.0
// Whatever a status holds, what is sent keeps the limits that the CRD states.
#include "operator/api/fit.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "operator/api/encode.h"

namespace weir::api {
namespace fit_test {

using nlohmann::json;

YAML::Node status_schema() {
  const YAML::Node crd = YAML::LoadFile(WEIR_SOURCE_DIR "/crds/pipelinejobs.weir.dev.yaml");
  return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
}

std::size_t characters(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

// The subset of OpenAPI that the CRD uses for status.
void check(const json& value, const YAML::Node& schema, const std::string& at) {
  ASSERT_TRUE(schema.IsDefined()) << at << " is not in the CRD";
  if (value.is_object()) {
    for (const auto& [key, each] : value.items())
      check(each, schema["properties"][key], at + "." + key);
  } else if (value.is_array()) {
    ASSERT_TRUE(schema["maxItems"].IsDefined()) << at << " has no maxItems";
    EXPECT_LE(value.size(), schema["maxItems"].as<std::size_t>()) << at;
    for (const json& each : value) check(each, schema["items"], at + "[]");
  } else if (value.is_string()) {
    if (schema["maxLength"]) {
      EXPECT_LE(characters(value), schema["maxLength"].as<std::size_t>()) << at;
    } else {
      EXPECT_TRUE(schema["format"] || schema["enum"]) << at << " has no limit";
    }
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (schema["minimum"]) {
      EXPECT_GE(number, schema["minimum"].as<std::int64_t>()) << at;
    }
    if (schema["maximum"]) {
      EXPECT_LE(number, schema["maximum"].as<std::int64_t>()) << at;
    }
  }
}

const std::string kLong = [] {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "\xC3\xA9";  // two bytes each
  return text;
}();
constexpr int kHuge = std::numeric_limits<int>::max();
constexpr std::size_t kMany = 1000;

PipelineJob job() {
  PipelineJob out;
  out.meta.name = "gpt";
  out.meta.namespace_name = "team";
  out.meta.uid = "u-1";
  return out;
}

TEST(Fit, AnyStatusKeepsTheLimitsOfTheCrd) {
  JobStatus status;
  status.conditions.assign(kMany, {kLong, "True", kLong, kLong, -5, Time{}});
  status.start_time = status.completion_time = status.last_restart_time = Time{};
  status.selector = status.workers_summary = status.template_hash = status.gang_provider = kLong;
  status.last_restart_reason = status.last_replan_request = kLong;
  status.last_restart_scope = "Job";
  status.restart_reasons.assign(kMany, {kLong, kHuge});
  status.avoided_nodes.assign(kMany, {kLong, kLong, Time{}});
  status.memory_limits.assign(kMany, {kLong, kHuge, -kHuge, true});
  status.recovery = {kLong, kLong, -1, Recovery{kLong, kLong, kLong, kHuge, kHuge, Time{}},
                     kHuge, {},    {}, Time{},
                     {},    Time{}};
  status.recovery.lost_replicas.assign(5 * kMany, kHuge);
  status.recovery.container_restarts.assign(5 * kMany, {kLong, kHuge});
  status.recovery.losses.assign(5 * kMany, {kLong, kHuge});
  status.coordinator = CoordinatorStatus{kLong, kLong, kLong, kHuge, Time{}};
  status.scheduling_timeouts = status.restarts = kHuge;
  status.scheduling_retry = Time{};
  status.worker_groups.assign(kMany, {kLong, kLong, kHuge, kHuge, -1, 0});
  status.model = {kLong, kLong, kHuge, std::numeric_limits<std::int64_t>::max()};
  status.plan.revision = std::numeric_limits<std::int64_t>::max();
  status.plan.trigger = "Initial";
  status.plan.config_map = status.plan.predicted_step_seconds = kLong;
  status.plan.predicted_gain_percent = status.plan.measured_gain_percent = kLong;
  status.plan.predicted_gain_interval = status.plan.measured_gain_error = kLong;
  status.plan.time = Time{};
  StageStatus stage;
  stage.worker_group = stage.node = kLong;
  status.plan.stages.assign(kMany, stage);
  status.retune_last_change = status.regroup_last_change = status.replace_last_change =
      status.compress_last_change = Time{};

  check(json::parse(encode_status(job(), status))["status"], status_schema(), "status");
}

// The longest explanation that a report could tell.
ReportStatus with_long_explanation() {
  ReportStatus status;
  status.performance = {kLong, kHuge, kHuge, kLong, {},    kHuge, {},
                        kLong, kLong, kLong, {},    kLong, kLong, {}};
  status.performance.also_seen.assign(kMany, {kLong, kLong, kLong});
  status.performance.remedies.assign(kMany, {kLong, kLong, kLong, kLong});
  status.performance.ranks.assign(kMany, {kHuge, kHuge, kHuge, kHuge, kHuge, kHuge, kHuge, kHuge});
  status.performance.lines.assign(kMany, {kLong, kLong});
  return status;
}

TEST(Fit, AnyReportKeepsTheLimitsOfTheCrd) {
  for (const int percentage : {-kHuge, kHuge}) {
    ReportStatus status = with_long_explanation();
    status.has_progress = true;
    status.percentage = percentage;
    status.samples_per_second = status.loss = status.bubble_percent = kLong;
    status.estimated_remaining_seconds = status.last_checkpoint_step = kHuge;
    status.last_step_time = status.last_report_time = status.last_sample_time = Time{};
    status.network_state = "Healthy";
    status.worst_links.assign(kMany, {kLong, kLong, kLong, kLong, kLong, kHuge, -kHuge, Time{}});
    status.sync_mode = "Partial";
    status.sync_group_size_max = kHuge;
    status.sync_mean_group_size = status.sync_max_staleness = kLong;
    status.micro_batch_shares.assign(kMany, kHuge);

    check(json::parse(encode_report_status(job(), status))["status"], status_schema(), "status");
  }
}

TEST(Fit, NoExplanationIsAboveItsLimit) {
  constexpr std::size_t kMostExplanation = std::size_t{64} * 1024;  // of a job of any size

  const json sent =
      json::parse(encode_report_status(job(), with_long_explanation()))["status"]["performance"];

  EXPECT_FALSE(sent["remedies"].empty());
  EXPECT_LE(sent.dump().size(), kMostExplanation);
}

TEST(Fit, WhatFitsStaysAsItIs) {
  JobStatus status;
  status.conditions.push_back({"Ready", "True", "Running", "training advances", 3, Time{}});
  status.worker_groups.push_back({"gpu", "0/4 nodes are available", 4, 3, 2, 0});
  const JobStatus before = status;

  fit(status);

  EXPECT_TRUE(status == before);
}

TEST(EncodeStatus, IsForTheJobOfThatUidAlone) {
  EXPECT_EQ(json::parse(encode_status(job(), {}))["metadata"]["uid"], "u-1");
  EXPECT_EQ(json::parse(encode_report_status(job(), {}))["metadata"]["uid"], "u-1");
}

}  // namespace fit_test
}  // namespace weir::api
