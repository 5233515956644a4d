// SPDX-License-Identifier: Apache-2.0
// The bytes of one example of each message between operator, coordinator and ranks, no field with
// its default. The key of JoinAnswer: tests/worker/protocol/codec_test.cpp.
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/recorded/recording.h"
#include "worker/protocol/codec.h"
#include "worker/protocol/profile.h"
#include "worker/schedule/families.h"

namespace weir::protocol {
namespace messages_test {

using recorded::compare_text;
using recorded::spread;

Profile profile() {
  return {.model = "gpt-mini",
          .digest = "sha256:bb",
          .state_factor = 4.5,
          .layers = {{.id = "l0",
                      .description = "embedding",
                      .parameter_bytes = 4096,
                      .output_bytes_per_sample = 256,
                      .activation_bytes_per_sample = 512,
                      .transient_bytes_per_sample = 64,
                      .transient_bytes = 1024,
                      .times = {{"cpu", {{1, 0.1, 0.25, 0.01}, {4, 0.3, 0.75, 0.01}}}}}}};
}

PartSeconds parts() {
  PartSeconds parts;
  for (std::size_t i = 0; i < kStepParts; ++i) parts.seconds[i] = 0.25 * static_cast<double>(i + 1);
  return parts;
}

schedule::Plan moving_plan() {
  schedule::Plan plan;
  plan.job_uid = "uid-1";
  plan.revision = 7;
  plan.parent = 6;
  plan.trigger = schedule::Trigger::kRegroup;
  plan.schedule = {schedule::Family::kKfkb, schedule::Dispatch::kHint, 4, 8, {8, 4}};
  plan.micro_batches = {20, 12};
  plan.stages = {{0, 8}, {9, 23}};
  plan.ranks = {{"j-a-0", "u0", "10.0.0.1", "n0", 0, 0, 0, 7071},
                {"j-a-1", "u1", "10.0.0.2", "n1", 0, 0, 1, 9001},
                {"j-a-2", "u2", "10.0.0.3", "n2", 0, 1, 0, 7071},
                {"j-a-2", "u2", "10.0.0.3", "n2", 1, 1, 1, 9002}};
  plan.idle = {"j-a-3"};
  plan.sync = {schedule::SyncMode::kPartial, 3, 5, 4.5, 20, 8};
  plan.state = schedule::StateMove::kMove;
  plan.holders = {{"j-a-0", "u0", "10.0.0.1", "n0", 9003, 1, 2, {3, 9}},
                  {"j-a-1", "u1", "10.0.0.2", "n1", 9001, 0, 1, {0, 2}, true}};
  plan.prepare_timeout_seconds = 12;
  plan.predicted_step_seconds = 1.42;
  plan.predicted_gain = 0.112;
  plan.links_digest = "sha256:aa";
  plan.profile_digest = "sha256:bb";
  return plan;
}

schedule::Plan restarting_plan() {
  schedule::Plan plan = moving_plan();
  plan.trigger = schedule::Trigger::kRestart;
  plan.schedule = {schedule::Family::kOneFOneB, schedule::Dispatch::kStrict, 1, 8, {2, 1}};
  plan.sync = {};
  plan.state = schedule::StateMove::kCheckpoint;
  plan.checkpoint_step = 40;
  plan.holders.clear();
  return plan;
}

const Member kMember{.pod = "j-a-1",
                     .pod_uid = "u1",
                     .worker_index = 1,
                     .ips = {"10.0.0.2", "fd00::2"},
                     .node = "n1",
                     .data_port = 9001,
                     .ranks = {{"A100", 42'000'000'000}, {"cpu", 9}}};

// Of port 7070, each kind once or more.
std::vector<Message> frames() {
  return {
      Hello{kMember, 3, 7, 120, {}, {{"--lr", "0.1"}}, {kStepsFeature}},
      Inventory{5,
                {{0, 3, 120, 5, 6, 1, true},
                 {.first = 0, .last = 3, .step = 116, .snapshot = true},
                 {.first = 4, .last = 7, .step = 116, .snapshot = true, .copy = true}},
                Verdict{0.5, 2.5}},
      Refused{"--lr is 0.1, worker 0 has 0.2"},
      StepsWanted{"5f3a", 117, 119, true, 1 << 20},
      Steps{"5f3a", "WEIRREC1"},
      Measure{{1, 2, 4}, 6},
      Measured{encode_profile(profile()), ""},
      Measured{"", "out of memory"},
      Probe{"10.0.0.2", 4711, 1 << 20},
      Probed{1.25e9, 2e-4},
      Unanswered{"10.0.0.7", 7071},
      Prepare{moving_plan(), 5},
      Prepare{restarting_plan(), 6},
      Ready{7, 1},
      Reject{7, "caps", 1},
      Commit{7, 44},
      ReadyState{7, "cannot connect", 43},
      Go{7},
      Abort{7},
      Applied{7, 45},
      StageStatus{.epoch = 7,
                  .step = 45,
                  .replica = 1,
                  .stage = 2,
                  .loss = 2.5,
                  .step_seconds = 1.5,
                  .compute_seconds = 0.5,
                  .idle_seconds = 0.25,
                  .samples = 64,
                  .memory_peak_bytes = 10,
                  .memory_limit_bytes = 20,
                  .memory_free_bytes = 30,
                  .skipped_in_row = 2,
                  .skipped_steps = 3,
                  .forward_seconds = 0.125,
                  .backward_seconds = 0.375,
                  .interrupted = true,
                  .parts = parts(),
                  .queued_seconds = 0.125,
                  .throttled_seconds = 0.25,
                  .sent = {{.forward = true,
                            .transfers = 10,
                            .timed = 8,
                            .seconds = 0.25,
                            .rtt_seconds = 0.001}}},
      PeerLost{1, 2, 7, "closed by the peer"},
      Leave{"finished"},
      Heartbeat{},
      Save{40, {0, 2}},
      Save{44, {}, true},
      Save{44, {}, true, CopySource{"10.0.0.3", 9001, 4, {{"layer-4", 64, "ab"}}}},
      Saved{.step = 40,
            .error = "/ckpt: no space left",
            .late = true,
            .at = 43,
            .leave = true,
            .files = {{"layer-3", 4096, std::string(64, 'a')}},
            .trouble = SaveTrouble::kFull},
      Saved{.step = 44, .error = "", .files = {}, .snapshot = true, .seconds = 0.5},
      Saved{.step = 44, .files = {}, .snapshot = true, .copy = true, .seconds = 0.25},
      BadCheckpoint{20, "layer-3: another digest"},
      Moved{7, 1 << 20},
      SyncReady{2, 45, 0.5, {{0, 1e9}, {3, 2.5e8}}, 0.75},
      Grant{9, 45, 47, {0, 2}, {0.25, 0.75}, true, true, 1.25, 4e8, 12.5},
      RoundFailed{2, 9, 1, "replica 1: closed by the peer"},
  };
}

Segment segment_of(std::uint32_t revision) {
  return {.revision = revision,
          .first_step = 11,
          .steps = 8,
          .step_seconds = 1.25,
          .step_error = 0.0625,
          .save_every = 10,
          .save_seconds = 0.75,
          .links = {{.replica = 1,
                     .boundary = 0,
                     .forward = false,
                     .seconds = 0.5,
                     .error = 0.125,
                     .latency_seconds = 0.25,
                     .timed = 30,
                     .transfers = 40}},
          .ranks = {{.replica = 1,
                     .stage = 1,
                     .forward_seconds = 0.5,
                     .backward_seconds = 0.75,
                     .parts = parts(),
                     .save_seconds = 0.5,
                     .queued_seconds = 0.125,
                     .throttled_seconds = 0.25}}};
}

Report report() {
  return {.job_uid = "uid-1",
          .sequence = 9'000'000'000,
          .plan_revision = 7,
          .incarnation = 2,
          .last_switch = LastSwitch{7, Outcome::kRefused, 17, 0.5, "no memory", 4096,
                                    schedule::StateMove::kCheckpoint, 12, 2, true},
          .step = 18,
          .total_steps = 100,
          .samples_per_second = 361.5,
          .loss = 3.25,
          .bubble_ratio = 0.125,
          .skipped_steps = 3,
          .skipped_in_row = 2,
          .last_checkpoint_step = 10,
          .members = {{"j-a-0", "u0", true, 1.5, 0.5, 0.25, 7, 8, 9, 6.5}},
          .sync = SyncGroups{12, 2.5, 3.5},
          .snapshots = "each 4 steps",
          .segment = segment_of(7),
          .previous_segment = segment_of(6),
          .stall = Stall{30.5, 3, {{0, 2, "backward", 7, 31.25}, {0, 3}}},
          .lost_replicas = {1},
          .dead_links = {{"gpt-l4-1", "gpt-l4-2", 31.5}}};
}

TEST(RecordedMessages, HaveTheSameBytes) {
  std::string text;
  const auto add = [&text](const std::string& name, const std::string& json) {
    text += "\n" + name + "\n" + spread(json) + "\n";
  };
  add("POST join", encode(Join{"uid-1", "j-a-1", "u1", 1, 2, 1, 3}));
  add("POST register", encode(Register{.job_uid = "uid-1",
                                       .members = {kMember},
                                       .model = {"gpt-mini", 24, "sha256:cc", 1000, "C", "a note"},
                                       .profile_json = encode_profile(profile()),
                                       .links = {{"n0", "n1", 1.5e9, 2e-4}},
                                       .last_checkpoint_step = 2000}));
  add("POST report", encode(report()));
  add("answer to POST report", encode(ReportAnswer{TraceWanted{"5f3a", 3}}));
  std::set<std::string> kinds;
  for (const Message& message : frames()) {
    kinds.insert(type_name(message));
    add(type_name(message), encode(message));
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Message>) << "a message without an example";
  compare_text("messages.txt", "Messages of the control API and of port 7070.", text);
}

TEST(RecordedMessages, NameTheirChoicesAlike) {
  using schedule::Dispatch;
  using schedule::StateMove;
  using schedule::SyncMode;
  using schedule::Trigger;
  std::string text;
  const auto add = [&text](const std::string& field, const auto&... values) {
    text += field + ":";
    ((text += std::string(" ") + name(values)), ...);
    text += "\n";
  };
  add("trigger", Trigger::kInitial, Trigger::kRetune, Trigger::kRegroup, Trigger::kReplace,
      Trigger::kRestart, Trigger::kResize, Trigger::kManual);
  text += "schedule.type:";
  for (const schedule::FamilyRules& rules : schedule::families()) {
    text += std::string(" ") + rules.name;
  }
  text += "\n";
  add("schedule.dispatch", Dispatch::kHint, Dispatch::kStrict);
  add("sync.mode", SyncMode::kExact, SyncMode::kPartial);
  add("state", StateMove::kKeep, StateMove::kMove, StateMove::kCheckpoint, StateMove::kRecover);
  for (const Outcome outcome : {Outcome::kApplied, Outcome::kRefused, Outcome::kAborted}) {
    Report told;
    told.last_switch = LastSwitch{.outcome = outcome};
    text += "lastSwitch: " + encode(told) + "\n";
  }
  for (const SaveTrouble trouble : {SaveTrouble::kNone, SaveTrouble::kFull, SaveTrouble::kBusy}) {
    text += "trouble: " + encode(Message(Saved{.trouble = trouble})) + "\n";
  }
  compare_text("choices.txt", "Values of fields that have a few.", text);
}

}  // namespace messages_test
}  // namespace weir::protocol
