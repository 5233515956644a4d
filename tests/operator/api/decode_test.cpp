// SPDX-License-Identifier: Apache-2.0
#include "operator/api/decode.h"

#include <gtest/gtest.h>

#include "worker/base/time_text.h"

namespace weir::api {
namespace {

constexpr auto kMinimal = R"({"metadata": {"name": "gpt", "namespace": "a", "uid": "u1",
  "resourceVersion": "7", "generation": 2, "creationTimestamp": "2026-01-02T03:04:05Z",
  "managedFields": [{"manager": 5}]},
  "spec": {"worker": {"image": "i:1", "args": ["--model=mlp"]},
           "workerGroups": [{"name": "b", "count": 2}, {"name": "a", "count": 1}],
           "batch": {"globalBatchSize": 64}}})";

TEST(DecodeJob, AppliesTheDefaultsOfTheCrd) {
  const auto job = decode_job(kMinimal);

  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->meta.generation, 2);
  EXPECT_EQ(to_rfc3339(job->meta.created), "2026-01-02T03:04:05Z");
  EXPECT_EQ(job->spec.schedule.type, "KFKB");
  EXPECT_EQ(job->spec.adaptation.retune.cooldown_seconds, 60);
  EXPECT_EQ(job->spec.adaptation.regroup.min_gain_percent, 10);
  EXPECT_FALSE(job->spec.adaptation.replace.enabled);
  EXPECT_EQ(job->spec.shared_memory, "1Gi");
  EXPECT_FALSE(job->spec.micro_batch_size.has_value());
}

TEST(DecodeJob, SortsGroupsByName) {
  const auto job = decode_job(kMinimal);

  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->spec.worker_groups[0].name, "a");
  EXPECT_EQ(job->spec.worker_groups[1].count, 2);
}

TEST(DecodeJob, NamesTheFieldOfAWrongType) {
  const struct {
    const char *json, *message;
  } cases[] = {
      {R"({"spec": {"batch": {"globalBatchSize": "x"}}})",
       "PipelineJob: spec.batch.globalBatchSize: not a 64-bit integer"},
      {R"({"spec": {"batch": {"globalBatchSize": 4294967296}}})",
       "PipelineJob: spec.batch.globalBatchSize: not a 32-bit integer"},
      {R"({"spec": {"workerGroups": [{"count": 1}, {"name": 3}]}})",
       "PipelineJob: spec.workerGroups[1].name: not a string"},
      {R"({"spec": {"workerGroups": {}}})", "PipelineJob: spec.workerGroups: not a list"},
      {R"({"spec": 4})", "PipelineJob: spec: not an object"},
      {R"({"metadata": {"creationTimestamp": "yesterday"}})",
       "PipelineJob: metadata.creationTimestamp: not a time (RFC 3339)"},
      {"{", "PipelineJob: not JSON"},
      {"[]", "PipelineJob: not a JSON object"},
  };
  for (const auto& c : cases) {
    const auto job = decode_job(c.json);
    ASSERT_FALSE(job.ok()) << c.json;
    EXPECT_EQ(job.error().code, Code::kInvalid);
    EXPECT_EQ(job.error().message, c.message);
  }
}

TEST(DecodeJob, RefusesDeepNesting) {
  const std::string deep = R"({"spec": )" + std::string(500, '[') + std::string(500, ']') + "}";

  const auto job = decode_job(deep);

  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().message, "PipelineJob: nested deeper than 64");
}

TEST(DecodeJob, LeavesConditionsOfOthersAlone) {
  const auto job = decode_job(R"({"status": {"conditions": [
    {"type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    {"type": "example.com/Billed", "status": "True"}]}})");

  ASSERT_TRUE(job.ok());
  ASSERT_EQ(job->status.conditions.size(), 1U);
  EXPECT_EQ(job->status.conditions[0].type, "Ready");
}

TEST(DecodePod, ReadsTheTrainerOnly) {
  const auto pod = decode_pod(R"({"metadata": {"name": "p", "ownerReferences":
      [{"uid": "other"}, {"uid": "u1", "controller": true}]},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Failed", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
      "conditions": [{"type": "Ready", "status": "False"}],
      "containerStatuses": [
        {"name": "sidecar", "state": {"terminated": {"exitCode": 9}}},
        {"name": "trainer", "state": {"terminated": {"exitCode": 81, "reason": "OOMKilled",
         "message": "no memory", "finishedAt": "2026-01-01T00:00:00Z"}}}]}})");

  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->meta.owner_uid, "u1");
  EXPECT_EQ(pod->exit_code, 81);
  EXPECT_EQ(pod->termination_reason, "OOMKilled");
  EXPECT_EQ(pod->ips.size(), 2U);
  EXPECT_FALSE(pod->ready);
  EXPECT_TRUE(pod->started);
}

TEST(DecodePod, TakesAPodWithoutStatusForPending) {
  const auto pod = decode_pod(R"({"metadata": {"name": "p"}})");

  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->phase, "Pending");
  EXPECT_FALSE(pod->exit_code.has_value());
}

TEST(DecodeList, GivesItemsAsTextWithoutManagedFields) {
  const auto page = decode_list(R"({"metadata": {"resourceVersion": "12", "continue": "c"},
    "items": [{"metadata": {"name": "x", "managedFields": [1, 2]}}]})");

  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->resource_version, "12");
  EXPECT_EQ(page->continue_token, "c");
  ASSERT_EQ(page->items.size(), 1U);
  EXPECT_EQ(page->items[0], R"({"metadata":{"name":"x"}})");
}

TEST(DecodeWatchEvent, CarriesTheVersionOfBookmarksAndTheCodeOfErrors) {
  const auto bookmark = decode_watch_event(
      R"({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}})");
  const auto error = decode_watch_event(
      R"({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})");

  ASSERT_TRUE(bookmark.ok() && error.ok());
  EXPECT_EQ(bookmark->resource_version, "99");
  EXPECT_EQ(bookmark->object, "");
  EXPECT_EQ(error->error_code, 410);
  EXPECT_EQ(error->error_reason, "Expired");
}

}  // namespace
}  // namespace weir::api
