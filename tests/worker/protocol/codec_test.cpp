// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/codec.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::protocol {
namespace codec_test {

using testing::HasSubstr;

template <class T>
std::string error_of(const Result<T>& result) {
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().code, Code::kInvalid);
  return result.error().message;
}

schedule::Plan plan_of_two_stages() {
  schedule::Plan plan;
  plan.job_uid = "uid-1";
  plan.revision = 7;
  plan.parent = 6;
  plan.trigger = schedule::Trigger::kRetune;
  plan.schedule = {schedule::Family::kKfkb, schedule::Dispatch::kHint, 4, 8, {8, 4}};
  plan.micro_batches = {32};
  plan.stages = {{0, 8}, {9, 23}};
  plan.ranks = {{"j-a-0", "u0", "10.0.0.1", "n0", 0, 0, 0, 7071},
                {"j-a-1", "u1", "10.0.0.2", "n1", 0, 0, 1, 9001}};
  plan.idle = {"j-a-2"};
  plan.prepare_timeout_seconds = 12;
  plan.predicted_step_seconds = 1.42;
  plan.predicted_gain = 0.112;
  plan.links_digest = "sha256:aa";
  plan.profile_digest = "sha256:bb";
  return plan;
}

TEST(PlanDocument, SurvivesTheRoundTrip) {
  const auto decoded = decode_plan(encode_plan(plan_of_two_stages()));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, plan_of_two_stages());
}

TEST(PlanDocument, HasTheFormOfTheApi) {
  schedule::Plan plan = plan_of_two_stages();
  plan.ranks.resize(1);
  plan.idle.clear();

  EXPECT_EQ(
      encode_plan(plan),
      R"({"apiVersion":"weir.dev/plan/v1","idle":[],"inputs":{"links":"sha256:aa","profile":"sha256:bb"},)"
      R"("jobUid":"uid-1","microBatches":[32],"parent":6,"prediction":{"gain":0.112,"stepSeconds":1.42},)"
      R"("prepareTimeoutSeconds":12,"ranks":[{"ip":"10.0.0.1","local":0,"node":"n0","pod":"j-a-0",)"
      R"("podUid":"u0","replica":0,"stage":0}],"revision":7,"schedule":{"caps":[8,4],"dispatch":"Hint",)"
      R"("k":4,"microBatchSize":8,"type":"KFKB"},"stages":[{"index":0,"layers":[0,8]},)"
      R"({"index":1,"layers":[9,23]}],"state":"Keep","sync":{"connectEvery":10,)"
      R"("graceWindowPercent":15,"groupSizeMax":2,"groupSizeMin":2,"maxStaleness":6.0,"mode":"Exact"},)"
      R"("trigger":"Retune"})");
}

TEST(PlanDocument, OfASplitBackwardHasAVersionOfItsOwn) {
  schedule::Plan plan = plan_of_two_stages();
  plan.schedule.split = schedule::Split{.held = {8, 7}, .postponed = {0, 3}};
  const std::string json = encode_plan(plan);

  EXPECT_THAT(json, HasSubstr(R"("apiVersion":"weir.dev/plan/v2")"));
  EXPECT_THAT(json, HasSubstr(R"("split":{"held":[8,7],"postponed":[0,3]})"));
  const auto decoded = decode_plan(json);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, plan);
  const auto prepare = decode_message(encode(Message(Prepare{plan, 0})));
  ASSERT_TRUE(prepare) << prepare.error().message;
  EXPECT_EQ(std::get<Prepare>(*prepare).plan, plan);
}

TEST(PlanDocument, ThatRecoversHasAVersionOfItsOwn) {
  schedule::Plan plan = plan_of_two_stages();
  plan.state = schedule::StateMove::kRecover;
  EXPECT_THAT(encode_plan(plan), HasSubstr(R"("apiVersion":"weir.dev/plan/v3")"));
  plan.schedule.split = schedule::Split{.held = {8, 7}, .postponed = {0, 3}};
  const auto decoded = decode_plan(encode_plan(plan));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, plan);
}

TEST(PlanDocument, WithCodecsHasAVersionOfItsOwn) {
  schedule::Plan plan = plan_of_two_stages();
  plan.codecs = {.forward = {schedule::Codec::kInt8}, .backward = {schedule::Codec::kBf16}};
  plan.trigger = schedule::Trigger::kCompress;
  const std::string json = encode_plan(plan);
  EXPECT_THAT(json, HasSubstr(R"("apiVersion":"weir.dev/plan/v4")"));
  EXPECT_THAT(json, HasSubstr(R"("codecs":{"backward":["BF16"],"forward":["Int8"]})"));
  const auto decoded = decode_plan(json);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, plan);
}

TEST(PlanDocument, NamesTheDataPortOnlyWhenItIsUnusual) {
  const std::string json = encode_plan(plan_of_two_stages());

  EXPECT_THAT(json, HasSubstr("\"dataPort\":9001"));
  EXPECT_EQ(json.find("\"dataPort\":7071"), std::string::npos);
}

TEST(PlanDocument, ReadsAHandWrittenOneAndIgnoresUnknownFields) {
  const auto plan = decode_plan(R"({
    "apiVersion": "weir.dev/plan/v1", "revision": 1, "colour": "blue",
    "schedule": {"type": "OneFOneB", "dispatch": "Strict", "k": 1, "microBatchSize": 2, "caps": [1]},
    "microBatches": [4], "stages": [{"index": 0, "layers": [0, 3], "x": {}}],
    "sync": {"mode": "Exact", "groupSizeMin": 2, "graceWindowPercent": 15}})");

  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->schedule.family, schedule::Family::kOneFOneB);
  EXPECT_EQ(plan->schedule.dispatch, schedule::Dispatch::kStrict);
  EXPECT_EQ(plan->stages, (std::vector<schedule::LayerRange>{{0, 3}}));
  EXPECT_EQ(plan->prepare_timeout_seconds, 10);
  EXPECT_TRUE(plan->ranks.empty());
}

// Each row: a piece of the document, what replaces it, the error.
struct Damage {
  const char *from, *to, *error;
};

TEST(PlanDocument, NamesTheWrongField) {
  const std::string good = encode_plan(plan_of_two_stages());
  for (const Damage& row : std::vector<Damage>{
           {"weir.dev/plan/v1", "weir.dev/plan/v5",
            "apiVersion: \"weir.dev/plan/v5\" is not known, only weir.dev/plan/v1, "
            "weir.dev/plan/v2, weir.dev/plan/v3, weir.dev/plan/v4"},
           {"\"parent\":6", "\"codecs\":{\"forward\":[\"Int8\"],\"backward\":[\"Raw\"]}",
            "codecs: needs apiVersion weir.dev/plan/v4"},
           {"\"parent\":6", "\"codecs\":{\"forward\":[\"Raw\"],\"backward\":[\"Int4\"]}",
            "codecs.backward[0]: \"Int4\" is not known to this worker"},
           {"\"parent\":6", "\"codecs\":{\"forward\":[\"Raw\"]}", "codecs.backward: missing"},
           {"\"caps\":[8,4]", "\"caps\":[8,4],\"split\":{\"held\":[8,8],\"postponed\":[0,1]}",
            "schedule.split: needs apiVersion weir.dev/plan/v2"},
           {"\"apiVersion\"", "\"x\"", "apiVersion: missing"},
           {"\"revision\":7", "\"revision\":-1", "revision: -1 is no integer of 0 to 4294967295"},
           {"\"revision\":7", "\"revision\":4294967296",
            "revision: 4294967296 is no integer of 0 to 4294967295"},
           {"\"revision\":7", "\"revision\":7.0", "revision: 7.0 is no integer"},
           {"\"revision\":7", "\"revision\":null", "revision: missing"},
           {"\"k\":4", "\"k\":99999999999999999999", "schedule.k: "},
           {"\"k\":4", "\"k\":18446744073709551615", "schedule.k: 18446744073709551615 is no"},
           {"\"type\":\"KFKB\"", "\"type\":\"ZeroBubble\"",
            "schedule.type: \"ZeroBubble\" is none of KFKB, "},
           {"\"caps\":[8,4]", "\"caps\":8", "schedule.caps: 8 is not a list"},
           {"\"caps\":[8,4]", "\"caps\":[8,\"4\"]", "schedule.caps[1]: \"4\" is no integer"},
           {"\"caps\":[8,4]", "\"caps\":[8,null]", "schedule.caps[1]: null is no integer"},
           {"\"schedule\":{", "\"schedule\":3,\"x\":{", "schedule: 3 is not an object"},
           {"\"replica\":0,\"stage\":1", "\"replica\":true,\"stage\":1",
            "ranks[1].replica: true is no integer"},
           {"\"pod\":\"j-a-1\"", "\"pod\":[1]", "ranks[1].pod: [1] is not a text"},
           {"\"index\":1", "\"index\":5", "stages[1].index: is not its place in the list"},
           {"\"layers\":[9,23]", "\"layers\":[9]", "stages[1].layers: is not [first, last]"},
           {"\"mode\":\"Exact\"", "\"mode\":\"Some\"",
            "sync.mode: \"Some\" is none of Exact, Partial"},
           {"\"groupSizeMax\":2", "\"groupSizeMax\":\"2\"",
            "sync.groupSizeMax: \"2\" is no integer"},
           {"\"gain\":0.112", "\"gain\":\"much\"", "prediction.gain: \"much\" is not a number"},
           {"\"idle\":[\"j-a-2\"]", "\"idle\":[{}]", "idle[0]: {} is not a text"},
           {"{\"apiVersion\"", "[\"apiVersion\"", "not valid JSON"}}) {
    std::string bad = good;
    const auto at = bad.find(row.from);
    ASSERT_NE(at, bad.npos) << row.from;
    bad.replace(at, std::string(row.from).size(), row.to);

    EXPECT_THAT(error_of(decode_plan(bad)), HasSubstr(row.error)) << row.to;
  }
}

TEST(HostileInput, IsRefusedWithoutHarm) {
  const std::string deep = "{\"a\":" + std::string(100'000, '[');
  EXPECT_EQ(error_of(decode_plan(deep)), "nested deeper than 32 levels");
  EXPECT_EQ(error_of(decode_message(std::string(33, '{'))), "nested deeper than 32 levels");
  for (const char* text : {"", "{", "nul", "[]", "7", "\"x\"", "{\"a\":1}x", "{\"a\":1e999}",
                           "\xFF\xFE", "{\"type\":\"\xC3\x28\"}", "{\"type\":{}}"}) {
    EXPECT_FALSE(decode_plan(text).ok()) << text;
    EXPECT_FALSE(decode_join(text).ok()) << text;
    EXPECT_FALSE(decode_join_answer(text).ok()) << text;
    EXPECT_FALSE(decode_register(text).ok()) << text;
    EXPECT_FALSE(decode_report(text).ok()) << text;
    EXPECT_FALSE(decode_message(text).ok()) << text;
  }
}

TEST(HostileInput, BracketsInsideTextsDoNotCount) {
  Join join{.job_uid = std::string(50, '[') + "\"\\{", .pod = "p", .pod_uid = "u"};

  const auto decoded = decode_join(encode(join));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->job_uid, join.job_uid);
}

TEST(HostileInput, TextThatIsNotUtf8IsReplacedNotThrown) {
  EXPECT_THAT(encode(Message(Leave{"a\xFF z"})), HasSubstr("a\xEF\xBF\xBD z"));
}

TEST(JoinMessage, SurvivesTheRoundTrip) {
  const auto decoded = decode_join(encode(Join{"uid", "pod-3", "pu", 3, 2, 1, 4}));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->pod, "pod-3");
  EXPECT_EQ(decoded->worker_index, 3);
  EXPECT_EQ(decoded->attempt, 2);
  EXPECT_EQ(decoded->protocol_max, 4);
  EXPECT_FALSE(decoded->lost_term);
}

TEST(JoinMessage, ClaimsThatACoordinatorIsLost) {
  Join claim{"uid", "pod-3", "pu", 3, 2, 1, 4};
  claim.lost_term = 2;

  EXPECT_EQ(decode_join(encode(claim))->lost_term, 2);
}

TEST(JoinMessage, NeedsItsFields) {
  EXPECT_EQ(error_of(decode_join("{}")), "jobUid: missing");
  EXPECT_EQ(error_of(decode_join(
                R"({"jobUid":"a","pod":"p","podUid":"u","workerIndex":0,"protocol":{"min":1}})")),
            "protocol.max: missing");
}

TEST(JoinAnswerMessage, CarriesTheKeyAsHex) {
  const std::string json = encode(JoinAnswer{std::string("\x00\xFF\x10", 3)});

  EXPECT_EQ(json, R"({"jobKey":"00ff10"})");
  EXPECT_EQ(decode_join_answer(json)->job_key, std::string("\x00\xFF\x10", 3));
  EXPECT_EQ(error_of(decode_join_answer(R"({"jobKey":"zz"})")), "jobKey: not hexadecimal");
  EXPECT_FALSE(decode_join_answer(json)->coordinator);
}

TEST(JoinAnswerMessage, NamesTheCoordinator) {
  const CoordinatorPlace place{.pod = "x-gpu-1",
                               .pod_uid = "u1",
                               .address = "10.0.0.2:7070",
                               .term = 2,
                               .lost_pod_uid = "u0"};
  const auto decoded = decode_join_answer(encode(JoinAnswer{"key", place}));

  ASSERT_TRUE(decoded.ok() && decoded->coordinator);
  EXPECT_EQ(decoded->coordinator->pod, "x-gpu-1");
  EXPECT_EQ(decoded->coordinator->pod_uid, "u1");
  EXPECT_EQ(decoded->coordinator->address, "10.0.0.2:7070");
  EXPECT_EQ(decoded->coordinator->term, 2);
  EXPECT_EQ(decoded->coordinator->lost_pod_uid, "u0");
  const auto older = decode_join_answer(
      R"({"jobKey":"00","coordinator":{"pod":"p","podUid":"u","address":"","term":2}})");
  ASSERT_TRUE(older.ok() && older->coordinator) << "of an operator that does not tell it";
  EXPECT_EQ(older->coordinator->lost_pod_uid, "");
  EXPECT_EQ(error_of(decode_join_answer(R"({"jobKey":"00","coordinator":{"pod":"p"}})")),
            "coordinator.podUid: missing");
}

TEST(RegisterMessage, SurvivesTheRoundTrip) {
  Register body{
      .job_uid = "uid",
      .members = {{"p0", "u0", 0, {"10.0.0.1", "fd00::1"}, "n0", 7071, {{"cpu", 1 << 30}}},
                  {"p1", "u1", 1, {"10.0.0.2"}, "n1", 4711, {{"A", 5}, {"B", 6}}}},
      .model = {"gpt-125m", 14, "sha256:cc"},
      .profile_json = R"({"apiVersion":"weir.dev/profile/v1","nodes":[]})",
      .links = {{"n0", "n1", 1.5e9, 2e-4}},
      .last_checkpoint_step = 2000};

  const auto decoded = decode_register(encode(body));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  ASSERT_EQ(decoded->members.size(), 2U);
  EXPECT_EQ(decoded->members[0].ips, body.members[0].ips);
  EXPECT_EQ(decoded->members[0].ranks[0].memory_bytes, 1 << 30);
  EXPECT_EQ(decoded->members[1].data_port, 4711);
  EXPECT_EQ(decoded->members[1].ranks[1].device, "B");
  EXPECT_EQ(decoded->model.layers, 14);
  EXPECT_EQ(decoded->profile_json, body.profile_json);
  EXPECT_DOUBLE_EQ(decoded->links[0].bytes_per_second, 1.5e9);
  EXPECT_EQ(decoded->last_checkpoint_step, 2000);
}

TEST(RegisterMessage, MayLackAProfile) {
  Register body{.job_uid = "uid", .members = {{.pod = "p", .pod_uid = "u"}}, .model = {"m", 1, ""}};

  const std::string json = encode(body);

  EXPECT_EQ(json.find("profile"), json.npos);
  EXPECT_EQ(decode_register(json)->profile_json, "");
  EXPECT_EQ(error_of(decode_register(
                R"({"jobUid":"u","members":[],"model":{"name":"m","layers":1},"profile":"text"})")),
            "profile: \"text\" is not an object");
}

TEST(ReportMessage, SurvivesTheRoundTrip) {
  Report report{.job_uid = "uid", .sequence = 9'000'000'000, .plan_revision = 4, .incarnation = 2};
  report.last_switch = LastSwitch{4, Outcome::kRefused, 17, 0.5, "no memory"};
  report.step = 18;
  report.loss = 3.25;
  report.members = {{"p0", "u0", true, 1, 0.5, 0.25, 7, 8}};
  report.exported = Exported{.folder = "/ckpt/hf", .step = 18, .bytes = 5'000'000'000};
  report.stall = Stall{.seconds = 30.5, .waiting = 3, .ranks = {{0, 2, "backward", 7, 31}, {1, 3}}};

  const auto decoded = decode_report(encode(report));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->sequence, 9'000'000'000);
  ASSERT_TRUE(decoded->last_switch.has_value());
  EXPECT_EQ(decoded->last_switch->outcome, Outcome::kRefused);
  EXPECT_EQ(decoded->last_switch->reason, "no memory");
  EXPECT_DOUBLE_EQ(decoded->loss, 3.25);
  EXPECT_TRUE(decoded->members[0].ready);
  ASSERT_TRUE(decoded->exported.has_value());
  EXPECT_EQ(decoded->exported->folder, "/ckpt/hf");
  EXPECT_EQ(decoded->exported->step, 18);
  EXPECT_EQ(decoded->exported->bytes, 5'000'000'000);
  ASSERT_TRUE(decoded->stall.has_value());
  EXPECT_EQ(decoded->stall->seconds, 30.5);
  EXPECT_EQ(decoded->stall->waiting, 3);
  ASSERT_EQ(decoded->stall->ranks.size(), 2U);
  EXPECT_EQ(decoded->stall->ranks[0].part, "backward");
  EXPECT_EQ(decoded->stall->ranks[0].micro_batch, 7);
  EXPECT_EQ(decoded->stall->ranks[0].seconds, 31);
  EXPECT_EQ(decoded->stall->ranks[1].replica, 1);
  EXPECT_EQ(decoded->stall->ranks[1].micro_batch, -1);
  EXPECT_FALSE(decode_report(encode(Report{.job_uid = "uid"}))->exported.has_value());
  EXPECT_FALSE(decode_report(encode(Report{.job_uid = "uid"}))->stall.has_value());
}

TEST(ReportMessage, AnUnknownLossIsNullAndNotANumber) {
  Report report{.job_uid = "uid", .loss = std::nan("")};

  const std::string json = encode(report);

  EXPECT_THAT(json, HasSubstr("\"loss\":null"));
  EXPECT_TRUE(std::isnan(decode_report(json)->loss));
  EXPECT_TRUE(std::isnan(decode_report(R"({"jobUid":"u","sequence":1,"planRevision":0})")->loss));
  EXPECT_FALSE(decode_report(json)->last_switch.has_value());
}

TEST(Frames, SurviveTheRoundTripWithTheirType) {
  const std::vector<Message> all{
      Hello{{"p", "u", 2, {"10.0.0.1"}, "n", 7071, {{"cpu", 9}}}, 3, 7, 120, {}, {{"--lr", "0.1"}}},
      Hello{{"p", "u", 2},
            3,
            7,
            120,
            Inventory{5, {{0, 3, 120, 5, 6, 1, true}}, Verdict{0.1, 2.5}, true},
            {},
            {},
            true},
      Inventory{5, {{0, 3, 120, 5, 0, -1, false}, {4, 7, 121, 5}}, Verdict{0.1, 2.5}},
      Refused{"--lr is 0.1, worker 0 has 0.2"},
      StepsWanted{"5f3a", 117, 119, true, 1 << 20},
      Steps{"5f3a", std::string("\0\xff octets", 9)},
      Steps{"5f3a", ""},
      Measure{{1, 2, 4}, 6},
      Measured{R"({"apiVersion":"weir.dev/profile/v1"})", ""},
      Measured{"", "out of memory"},
      Probe{"10.0.0.2", 4711, 1 << 20},
      Probed{1e9, 2e-4},
      Unanswered{"10.0.0.2", 4711},
      Prepare{plan_of_two_stages(), 5},
      Ready{7, 1},
      Reject{7, "caps", 1},
      Commit{7, 44, Verdict{0.1, 2.5}, 6},
      ReadyState{7, "cannot connect", 43, true},
      Go{7},
      Abort{7},
      Applied{7, 45},
      StageStatus{7, 45, 0, 1, 2.5, 1, 0.5, 0.25, 64, 10, 20, 30},
      PeerLost{0, 1, 7, "closed"},
      Leave{"finished"},
      Leave{"finished", Validation{100, 2.5}},
      SyncReady{2, 45, 0.5, {{0, 1e9}, {3, 2.5e8}}, 0.75},
      SyncReady{2, 46, 0.5, {}},
      Grant{9, 45, 47, {0, 2, 3}, {1.0 / 3, 1.0 / 3, 1.0 / 3}, true, true, 1.25, 4e8, 12.5},
      RoundFailed{2, 9, 1, "replica 1: closed by the peer"},
      Heartbeat{}};
  for (const auto& message : all) {
    const std::string json = encode(message);

    const auto decoded = decode_message(json);

    ASSERT_TRUE(decoded.ok()) << json << ": " << decoded.error().message;
    EXPECT_STREQ(type_name(*decoded), type_name(message));
    EXPECT_EQ(encode(*decoded), json);
  }
}

TEST(Frames, KeepWhatMatters) {
  const auto prepared = decode_message(encode(Message(Prepare{plan_of_two_stages(), 5})));
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(std::get<Prepare>(*prepared).plan, plan_of_two_stages());
  EXPECT_EQ(std::get<Prepare>(*prepared).incarnation, 5);

  const auto hello =
      decode_message(encode(Message(Hello{{.pod = "p", .pod_uid = "u"}, 3, 7, 120})));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(std::get<Hello>(*hello).revision, 7U);
  EXPECT_EQ(std::get<Hello>(*hello).step, 120);
  EXPECT_TRUE(std::get<Hello>(*hello).settings.empty());
}

TEST(Frames, TellOfCongestionControlThatIsNotAllowedAndOfStepsWithCodecs) {
  const TransportFallback fallback{.wanted = "bbr", .allowed = "reno cubic", .in_use = "cubic"};
  Hello hello{.member = {.pod = "p", .pod_uid = "u", .fallback = fallback}};
  hello.inventory = {.history = 1, .held = {{.last = 3, .step = 120, .compressed_steps = 41}}};
  const auto read = decode_message(encode(Message(hello)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(std::get<Hello>(*read).member.fallback, fallback);
  EXPECT_EQ(std::get<Hello>(*read).inventory.held.at(0).compressed_steps, 41);
  EXPECT_EQ(text_of(fallback, "n2"),
            "congestion control bbr is not allowed on node n2 (allowed: reno cubic); cubic stays "
            "in use");
  EXPECT_EQ(decode_register(encode(Register{.members = {hello.member}}))->members.at(0).fallback,
            fallback);

  const auto commit = decode_message(encode(Message(Commit{.revision = 7, .compressed_steps = 9})));
  EXPECT_EQ(std::get<Commit>(*commit).compressed_steps, 9);
  EXPECT_EQ(decode_report(encode(Report{.compressed_steps = 0}))->compressed_steps, 0);
  EXPECT_EQ(decode_report(encode(Report{}))->compressed_steps, std::nullopt);

  // Of an older release.
  const auto old = decode_message(
      R"({"type": "HELLO", "member": {"pod": "p", "podUid": "u"}, "inventory": {"held": [)"
      R"({"first": 0, "last": 3, "step": 120}]}})");
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_EQ(std::get<Hello>(*old).member.fallback, std::nullopt);
  EXPECT_EQ(std::get<Hello>(*old).inventory.held.at(0).compressed_steps, 0);
}

TEST(Frames, TellTheCodecsOfKeptSums) {
  using schedule::Codec;
  const schedule::Codecs codecs = {.forward = {Codec::kInt8}, .backward = {Codec::kRaw}};
  const auto told = [](const schedule::Codecs& some) {
    Inventory inventory{.history = 1, .held = {{.last = 3, .step = 120}}};
    inventory.held[0].sums = KeptSums{.ids = {{0, 2}}, .codecs = some};
    return encode(Message(inventory));
  };
  const auto read = decode_message(told(codecs));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(std::get<Inventory>(*read).held.at(0).sums->codecs, codecs);
  EXPECT_EQ(told({}).find("codecs"), std::string::npos) << "as an older release does";
}

TEST(Frames, CarryOctetsAsBase64) {
  const std::string octets("\0\xff\n", 3);
  const auto read = decode_message(encode(Steps{"5f3a", octets}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Steps>(*read).octets, octets);
  const auto wrong = decode_message(R"({"type": "STEPS", "id": "5f3a", "data": "?"})");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "data: not base64");
}

TEST(ReportAnswerMessage, NamesAReplicaWhereOneIsMeant) {
  EXPECT_EQ(encode(ReportAnswer{TraceWanted{"a", 3}}).find("replica"), std::string::npos);
  EXPECT_EQ(decode_report_answer(encode(ReportAnswer{TraceWanted{"a", 3}}))->trace->replica, -1);
  EXPECT_EQ(decode_report_answer(encode(ReportAnswer{TraceWanted{"a", 3, 2}}))->trace->replica, 2);
}

TEST(ReportAnswerMessage, OfAnOlderOperatorAsksForNothing) {
  const auto answer = decode_report_answer(encode(ReportAnswer{TraceWanted{"5f3a", 3}}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->trace, (TraceWanted{"5f3a", 3}));
  EXPECT_FALSE(decode_report_answer("{}")->trace.has_value());
  EXPECT_FALSE(decode_report_answer("accepted\n").ok());
}

TEST(Frames, NameTheWrongField) {
  EXPECT_EQ(error_of(decode_message("{}")), "type: missing");
  EXPECT_EQ(error_of(decode_message(R"({"type":"DANCE"})")), "type: \"DANCE\" is not known");
  EXPECT_EQ(error_of(decode_message(R"({"type":"COMMIT","revision":1})")), "atStep: missing");
  EXPECT_EQ(error_of(decode_message(R"({"type":"SAVED","step":1,"files":[{"name":3}]})")),
            "files[0].name: 3 is not a text");
  EXPECT_EQ(error_of(decode_message(R"({"type":"PREPARE","plan":{"apiVersion":"v9"}})")),
            "plan.apiVersion: \"v9\" is not known, only weir.dev/plan/v1, weir.dev/plan/v2, "
            "weir.dev/plan/v3, weir.dev/plan/v4");
}

TEST(SaveMessages, SurviveTheRoundTrip) {
  const auto save = decode_message(encode(Message(Save{40})));
  ASSERT_TRUE(save.ok()) << save.error().message;
  EXPECT_EQ(std::get<Save>(*save).step, 40);

  const Saved saved{.step = 40, .late = true, .at = 43, .leave = true, .files = {{"a", 9, "ff"}}};
  const auto back = decode_message(encode(Message(saved)));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(std::get<Saved>(*back).late && std::get<Saved>(*back).leave);
  EXPECT_EQ(std::get<Saved>(*back).at, 43);
  ASSERT_EQ(std::get<Saved>(*back).files.size(), 1U);
  EXPECT_EQ(std::get<Saved>(*back).files[0].bytes, 9);
  EXPECT_EQ(std::get<Saved>(*back).files[0].sha256, "ff");

  const auto bad = decode_message(encode(Message(BadCheckpoint{20, "torn"})));
  ASSERT_TRUE(bad.ok()) << bad.error().message;
  EXPECT_EQ(std::get<BadCheckpoint>(*bad).reason, "torn");
}

TEST(PlanDocument, NamesACheckpointOnlyWhenThereIsOne) {
  schedule::Plan plan{.revision = 2, .micro_batches = {4}, .stages = {{0, 1}}};
  plan.schedule.caps = {1};
  EXPECT_EQ(encode_plan(plan).find("checkpointStep"), std::string::npos);
  EXPECT_EQ(decode_plan(encode_plan(plan))->checkpoint_step, -1);
  plan.checkpoint_step = 40;
  EXPECT_EQ(decode_plan(encode_plan(plan))->checkpoint_step, 40);
}

}  // namespace codec_test
}  // namespace weir::protocol
