// SPDX-License-Identifier: Apache-2.0
// What each command prints, in full.
#include "operator/cli/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/jobs.h"

namespace weir::cli {
namespace views_test {

using namespace test_jobs;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<PlanRecord> two_plans() {
  return {{*parse_rfc3339("2026-01-02T09:24:31Z"), plan_of(2, 2)},
          {*parse_rfc3339("2026-01-01T08:00:00Z"), plan_of(1, 1)}};
}

std::vector<JobEvent> one_outcome() {
  return {{*parse_rfc3339("2026-01-02T09:26:00Z"), "Normal", "PlanOutcome",
           "revision 2: measured +26.7 % (+-1.1) over 14 steps against 6 on the same network; "
           "predicted for this network +26.1 %, when decided +24.8 %; step 1.51 s -> 1.19 s"}};
}

// A job that waits, with conditions in place of those of running_job.
json waiting_job(const json& conditions) {
  json job = running_job();
  job["status"]["conditions"] = conditions;
  job["status"].erase("progress");
  job["status"].erase("network");
  job["status"].erase("plan");
  return job;
}

std::string why(const json& job,
                const std::optional<std::vector<JobEvent>>& events = std::vector<JobEvent>{}) {
  const Lines lines = why_lines(view_of(job), events, kNow);
  for (const auto& line : lines) EXPECT_LE(width_of(line), kLineWidth) << line;
  return text_of(lines);
}

TEST(Views, WhyOfAStalledJobTellsWhoWaitsForWhom) {
  json job = running_job();
  job["status"]["conditions"][0] =
      condition_of("Ready", "False", "Stalled",
                   "no step after step 151: 3 ranks wait for rank 2 (replica 0, stage 2, n3), "
                   "which does not answer");
  job["status"]["progress"]["lastStepTime"] = "2026-01-02T09:28:57Z";

  EXPECT_EQ(why(job),
            "gpt: no steps are made now, 151 are complete (Stalled: no step after step 151: 3 "
            "ranks wait for rank 2 (replica 0, stage\n"
            "2, n3), which does not answer)\n"
            "Last step     63 s ago, as of 8 s ago\n");
}

TEST(Views, TopShowsJobsWithTheAgeOfTheirData) {
  json young = running_job();
  young["metadata"]["name"] = "young";
  young.erase("status");
  json done = running_job();
  done["metadata"]["name"] = "done";
  done["status"]["conditions"] = {condition_of("Ready", "True", "Complete", "")};

  const auto lines =
      top_lines({view_of(running_job()), view_of(young), view_of(done)}, kNow, false);

  EXPECT_EQ(
      text_of(lines),
      "NAME   STATE     STEP     STEP-TIME  OVER-BOUND  SAMPLES/S  K  NETWORK    PLAN  DATA-AGE\n"
      "gpt    Running   151/300  1509 ms    27 %        42.4       2  Contended  2     8 s\n"
      "young  Unseen    -        -          -           -          -  -          -     -\n"
      "done   Complete  151/300  -          -           -          2  -          2     8 s\n");
}

TEST(Views, TopFitsLongNamesIntoALine) {
  json job = running_job();
  job["metadata"]["name"] = std::string(40, 'j');
  job["metadata"]["namespace"] = std::string(63, 'n');

  for (const auto& line : top_lines({view_of(job)}, kNow, true))
    EXPECT_LE(width_of(line), kLineWidth);
  EXPECT_EQ(text_of(top_lines({}, kNow, true)), "no jobs\n");
}

TEST(Views, RanksShowTheirPlaces) {
  schedule::Plan plan = plan_of(2, 2);
  plan.idle = {"gpt-l4-2"};

  EXPECT_EQ(text_of(rank_lines(view_of(running_job()), &plan, kNow)),
            "gpt: Running, step 151/300, a step takes 1509 ms, as of 8 s ago\n"
            "RANK  POD         NODE  REPLICA  STAGE  LAYERS  CAP  MICRO-BATCHES\n"
            "0     gpt-a100-0  n1    0        0      0-3     4    16\n"
            "1     gpt-l4-1    n2    0        1      4-7     2    16\n"
            "idle: gpt-l4-2\n");
  EXPECT_THAT(text_of(rank_lines(view_of(running_job()), nullptr, kNow)),
              HasSubstr("its plan is not among the ConfigMaps gpt-plan-..."));
}

TEST(Views, RanksShowWhetherASpareIsThere) {
  json job = running_job();
  job["status"]["recovery"] = {{"spares", "1/2"}};
  const schedule::Plan plan = plan_of(2, 2);
  EXPECT_THAT(text_of(rank_lines(view_of(job), &plan, kNow)),
              HasSubstr("a step takes 1509 ms, spares 1/2, as of 8 s ago\n"));
}

TEST(Views, RanksShowWhoCoordinatesOnceAnotherOneWasLost) {
  json job = running_job();
  job["status"]["coordinator"] = {{"pod", "gpt-l4-1"}, {"term", 2}};
  const schedule::Plan plan = plan_of(2, 2);
  EXPECT_THAT(text_of(rank_lines(view_of(job), &plan, kNow)),
              HasSubstr("takes 1509 ms, coordinator gpt-l4-1 (term 2), as of 8 s ago\n"));
}

TEST(Views, RanksShowWhatTheyDoOfAStep) {
  json job = running_job();
  job["status"]["performance"] = json::parse(R"json({"stepMilliseconds": "1511.0", "ranks": [
      {"stage": 0, "busyPercent": 63, "latePercent": 20, "linkPercent": 4, "fullPercent": 8,
       "updatePercent": 1}]})json");
  const schedule::Plan plan = plan_of(2, 2);

  const Lines lines = rank_lines(view_of(job), &plan, kNow);

  for (const auto& line : lines) EXPECT_LE(width_of(line), kLineWidth);
  EXPECT_THAT(
      text_of(lines),
      HasSubstr("RANK  POD         NODE  REPLICA  STAGE  LAYERS  CAP  MICRO-BATCHES  BUSY  LATE  "
                "LINK  FULL  REPLICAS  UPDATE\n"
                "0     gpt-a100-0  n1    0        0      0-3     4    16             63 %  20 %  "
                "4 %   8 %   0 %       1 %\n"
                "1     gpt-l4-1    n2    0        1      4-7     2    16             -     -     "
                "-     -     -         -\n"));
}

TEST(Views, RanksShowForHowLongTheirCpuLimitThrottlesThem) {
  json job = running_job();
  job["status"]["performance"] = json::parse(R"json({"stepMilliseconds": "1511.0", "ranks": [
      {"stage": 0, "busyPercent": 63, "latePercent": 20, "linkPercent": 4, "fullPercent": 8},
      {"stage": 1, "busyPercent": 90, "latePercent": 10, "throttledPercent": 27}]})json");
  const schedule::Plan plan = plan_of(2, 2);

  const Lines lines = rank_lines(view_of(job), &plan, kNow);

  for (const auto& line : lines) EXPECT_LE(width_of(line), kLineWidth);
  EXPECT_THAT(text_of(lines), HasSubstr("LINK  FULL  REPLICAS  UPDATE  THROTTLED\n"));
  EXPECT_THAT(text_of(lines), HasSubstr("4 %   8 %   0 %       0 %     -\n"));
  EXPECT_THAT(text_of(lines), HasSubstr("0 %   0 %   0 %       0 %     27 %\n"));
}

TEST(Views, PlanShowsStagesAndWhatRevisionsBrought) {
  EXPECT_EQ(text_of(plan_lines(view_of(running_job()), two_plans(), one_outcome(), kNow)),
            "gpt: plan 2 (Retune), in force since step 120; k=2, 16 micro-batches of 4, 2 stages\n"
            "predicted: 1.19 s a step; above what no order can beat: measured 27 %, simulated 6 %\n"
            "STAGE  LAYERS  CAP  RANKS  GROUP  NODE\n"
            "0      0-3     4    1      a100   n1\n"
            "1      4-7     2    1      l4     n2\n"
            "\n"
            "REVISION  TIME (UTC)   WHAT                     PREDICTED (80 %)    MEASURED         "
            "JUDGED\n"
            "2         09:24:31     k 1 -> 2 (Retune)        +26.1 % (+21..+31)  +26.7 % (+-1.1)  "
            "kept: 14 steps against 6\n"
            "1         01-01 08:00  k 1, 2 stages (Initial)  -                   -                "
            "-\n");
}

TEST(Views, PlanSaysWhatIsMissing) {
  json job = running_job();
  job["status"].erase("plan");
  EXPECT_EQ(text_of(plan_lines(view_of(job), {}, {}, kNow)),
            "gpt: there is no plan yet (Running)\n");
  EXPECT_THAT(text_of(plan_lines(view_of(running_job()), {}, {}, kNow)),
              HasSubstr("the history is unknown"));
}

TEST(Views, WhyNamesCauseNetworkAndLastChange) {
  EXPECT_EQ(
      why(running_job(), one_outcome()),
      "gpt: Running, step 151/300, plan 2 (k=2, 16 micro-batches of 4, 2 stages), as of 8 s ago\n"
      "A step takes 1509 ms. No order on these devices and links can take less than about 1189 "
      "ms: this one is 27 % above that.\n"
      "Main cause    NetworkContended: link n1->n2 38.0Mbit/s, usually 3.4Gbit/s, costs 321 ms a "
      "step (21.2 %)\n"
      "Network       Contended: a link is slower than usual, and that costs time\n"
      "              link n1 -> n2 (stage 0 -> 1): 38.0Mbit/s, usually 3.4Gbit/s, for 41 s\n"
      "Last change   PlanOutcome 4 min ago: revision 2: measured +26.7 % (+-1.1) over 14 steps "
      "against 6 on the same network;\n"
      "              predicted for this network +26.1 %, when decided +24.8 %; step 1.51 "
      "s -> 1.19 s\n"
      "The operator  compares other orders each tick, and changes the plan when a gain is sure "
      "enough\n"
      "Not known     where a step goes: workers of an older release do not tell the parts of a "
      "step, so only status is shown\n");
}

TEST(Views, WhyShowsWhereAStepGoes) {
  json job = running_job();
  job["status"]["performance"] = json::parse(R"json({
    "stepMilliseconds": "1511.0", "steps": 32, "slowestStage": 2, "slowestNode": "n3", "lines": [
      {"line": "Compute", "milliseconds": "950.0"}, {"line": "Data", "milliseconds": "0.0"},
      {"line": "FillAndDrain", "milliseconds": "180.0"},
      {"line": "UsualLinks", "milliseconds": "2.0"}, {"line": "SlowLinks", "milliseconds": "54.0"},
      {"line": "Order", "milliseconds": "315.0"}, {"line": "Update", "milliseconds": "8.0"},
      {"line": "Interruptions", "milliseconds": "0.0"}, {"line": "Newer", "milliseconds": "4.5"},
      {"line": "NotExplained", "milliseconds": "-2.5"}]})json");

  EXPECT_THAT(why(job), HasSubstr("Where a step goes (mean of 32 steps)           ms      %\n"
                                  "  compute of the slowest stage (2, on n3)   950.0   62.9\n"
                                  "  loading its data                            0.0    0.0\n"
                                  "  filling and draining the pipeline         180.0   11.9\n"
                                  "  links at their usual rates                  2.0    0.1\n"
                                  "  links slower than usual                    54.0    3.6\n"
                                  "  what this order does not hide             315.0   20.8\n"
                                  "  sums, clipping and optimizer                8.0    0.5\n"
                                  "  saves, validation, switches                 0.0    0.0\n"
                                  "  Newer                                       4.5    0.3\n"
                                  "  not explained                              -2.5   -0.2\n"
                                  "  a step                                   1511.0  100.0\n"));
  EXPECT_THAT(why(job),
              HasSubstr("Main cause    none is certain: nothing that costs 2 % of a step is seen"));
  EXPECT_THAT(why(job), Not(HasSubstr("Not known")));

  job["status"]["performance"]["slowestNode"] = std::string(200, 'n');
  why(job);  // no line is too long
}

TEST(Views, WhyNamesTheCauseWithItsCostAndWhatWouldHelp) {
  json job = running_job();
  json& performance = job["status"]["performance"] = json::parse(R"json({
    "stepMilliseconds": "1511.0", "steps": 32, "slowestStage": 2, "slowestNode": "n3",
    "lines": [{"line": "Compute", "milliseconds": "1511.0"}], "cause": "SlowLink",
    "causeText": "link n1 <-> n2 (stages 1, 2; both directions): 38.0Mbit/s, usually 3.4Gbit/s",
    "causeSeconds": "0.3210",
    "alsoSeen": [
      {"cause": "SlowDevice", "text": "rank 3 (stage 3) on n4 computes 12 % slower than usual",
       "seconds": "0.0010"},
      {"cause": "Data", "text": "rank 0 (stage 0) on n1 loads its data for 20 ms a step",
       "seconds": "0.0200"}],
    "remedy": "link n1 <-> n2 at its usual rate", "remedySeconds": "1.1900",
    "remedies": [
      {"text": "link n1 <-> n2 at its usual rate", "stepSeconds": "1.1900",
       "savesSeconds": "0.3210", "answer": "needs the other tenant"},
      {"text": "order k=2 caps 4,2 Hint", "stepSeconds": "1.1960", "savesSeconds": "0.3150",
       "answer": "operator: waits: seen once, needs a second evaluation"}]})json");

  EXPECT_THAT(
      why(job),
      HasSubstr(
          "Main cause    link n1 <-> n2 (stages 1, 2; both directions): 38.0Mbit/s, usually "
          "3.4Gbit/s. It costs 321 ms a step "
          "(21.2\n              %).\n"
          "Also seen     rank 3 (stage 3) on n4 computes 12 % slower than usual: hidden, costs "
          "nothing now\n"
          "              rank 0 (stage 0) on n1 loads its data for 20 ms a step: costs 20 ms a "
          "step alone\n"
          "What would help                     a step would take  saves\n"
          "  link n1 <-> n2 at its usual rate  1190 ms            321 ms  needs the other tenant\n"
          "  order k=2 caps 4,2 Hint           1196 ms            315 ms  operator: waits: seen "
          "once, needs a second evaluation\n"
          "Network       Contended"));
  EXPECT_THAT(why(job), Not(HasSubstr("NetworkContended")));

  job["status"]["conditions"][3]["reason"] = "StepsSkipped";
  EXPECT_THAT(why(job), HasSubstr("Degraded      StepsSkipped: "));
  performance["causeText"] = performance["remedies"][0]["text"] =
      performance["remedies"][0]["answer"] = std::string(500, 'n');
  why(job);  // no line is too long
}

TEST(Views, WhyTellsWhatTheOperatorDoes) {
  json job = running_job();
  job["spec"]["adaptation"]["mode"] = "Off";
  job["status"]["conditions"][2] =
      condition_of("NetworkMetricsAvailable", "Unknown", "Disabled", "adaptation.mode is Off");
  EXPECT_THAT(why(job), HasSubstr("changes nothing: spec.adaptation.mode is Off"));
  EXPECT_THAT(why(job), Not(HasSubstr("not known: Disabled")));
  job = running_job();
  job["metadata"]["annotations"] = {{"weir.dev/freeze-plan", "x"}};
  EXPECT_THAT(why(job), HasSubstr("annotation weir.dev/freeze-plan"));
  job = running_job();
  job["status"]["adaptation"]["retune"] = {{"lastChangeTime", "2026-01-02T09:29:31Z"},
                                           {"cooldownSeconds", 60}};
  EXPECT_THAT(why(job), HasSubstr("retunes not before 31 s from now (cooldown)"));
  job = running_job();
  job["spec"]["adaptation"]["mode"] = "Observe";
  EXPECT_THAT(why(job, std::vector<JobEvent>{{kNow, "Normal", "PlanProposed", "k 1->2"}}),
              HasSubstr("last proposal 0 s ago: k 1->2"));
  job = running_job();
  job["status"]["conditions"][2] =
      condition_of("NetworkMetricsAvailable", "False", "NoSeries", "Prometheus has no series");
  EXPECT_THAT(why(job), HasSubstr("not known: NoSeries: Prometheus has no series"));
  EXPECT_THAT(why(job, std::nullopt), HasSubstr("Events        not read"));
}

TEST(Views, WhySaysWhyNothingIsToldOfWhereAStepGoes) {
  json job = running_job();
  json& status = job["status"];
  status["plan"]["appliedStep"] = 148;
  EXPECT_THAT(why(job), HasSubstr("Not known     too early: 3 steps since plan 2; try again in "
                                  "about 7 s\n"))
      << "progress was written 8 s ago, and is each 15 s";
  status["plan"]["appliedStep"] = 150;
  status["progress"]["samplesPerSecond"] = "6.4";  // 10 s a step, of which three are wanted
  EXPECT_THAT(why(job), HasSubstr("too early: 1 step since plan 2; try again in about 20 s\n"));
  status["progress"]["lastReportTime"] = "2026-01-02T09:20:00Z";
  status["progress"]["samplesPerSecond"] = "64";
  EXPECT_THAT(why(job), HasSubstr("try again in about 5 s\n"));
  status["plan"]["appliedRevision"] = 1;
  EXPECT_THAT(why(job), Not(HasSubstr("too early")));

  status["sync"]["mode"] = "Partial";
  EXPECT_THAT(why(job), HasSubstr("workers of an older release")) << "it has one replica";
  status["dataParallel"] = 2;
  EXPECT_THAT(why(job), HasSubstr("where a step goes: replicas that average have no common step"));
  status["sync"]["mode"] = "Exact";
  status["dataParallel"] = 129;
  EXPECT_THAT(why(job), HasSubstr("where a step goes: workers tell it of at most 256 ranks and 64 "
                                  "stages"));
}

TEST(Views, WhySaysThatTheDataIsOld) {
  json job = running_job();
  job["status"]["progress"]["lastReportTime"] = "2026-01-02T09:16:00Z";
  EXPECT_THAT(why(job), HasSubstr("as of 14 min ago: no report has been written"));
  job = running_job();
  job["status"]["plan"].erase("boundPercent");
  EXPECT_THAT(why(job), HasSubstr("is not known yet"));
  job["status"]["plan"]["boundPercent"] = {{"simulated", 6}};
  EXPECT_THAT(why(job), HasSubstr("By simulation no order on these devices and links can take less "
                                  "than about 1123 ms."));
  EXPECT_THAT(text_of(top_lines({view_of(job)}, kNow, false)), HasSubstr(" ~6 % "));
}

TEST(Views, WhyTellsWhatAJobWaitsFor) {
  json job = waiting_job(
      {condition_of("Accepted", "True", "Accepted", ""),
       condition_of("PodsScheduled", "False", "Unschedulable", "2 of 4 pods have no node: no GPU"),
       condition_of("WorkersReady", "Unknown", "Pending", ""),
       condition_of("Ready", "False", "Pending", "2 of 4 pods have no node: no GPU"),
       condition_of("Suspended", "False", "Resumed", "")});
  job["status"]["workerGroups"] = {{{"name", "l4"},
                                    {"desired", 2},
                                    {"scheduled", 0},
                                    {"ready", 0},
                                    {"pendingReason", "0/4 nodes are available"}}};

  EXPECT_EQ(why(job, std::vector<JobEvent>{{kNow, "Warning", "Unschedulable", "l4: no GPU"}}),
            "gpt: no step has been completed yet (Pending: 2 of 4 pods have no node: no GPU)\n"
            "PodsScheduled Unschedulable: 2 of 4 pods have no node: no GPU\n"
            "Pods          group l4: 0 of 2 have a node, 0 are ready; 0/4 nodes are available\n"
            "Last warning  Unschedulable 0 s ago: l4: no GPU\n");
}

TEST(Views, WhyTellsHowAJobEndedAndThatNobodySawIt) {
  json job = running_job();
  job["status"]["conditions"] = {condition_of("Failed", "True", "OutOfMemory", "rank 1: 8 GB"),
                                 condition_of("Ready", "False", "Failed", "")};
  EXPECT_EQ(why(job), "gpt: Failed at step 151/300: OutOfMemory: rank 1: 8 GB\n");
  job.erase("status");
  EXPECT_THAT(why(job), HasSubstr("no operator has seen it yet, 30 min after it was made"));
}

TEST(Views, CheckpointsTellPlaceAndLoss) {
  EXPECT_EQ(text_of(checkpoint_lines(view_of(running_job()), kNow)),
            "gpt: /ckpt/gpt of claim models\n"
            "saved each 10 min or so\n"
            "newest: step 100; a crash now would repeat 51 steps, about 76 s (as of 8 s ago)\n");
  json job = running_job();
  job["spec"].erase("checkpoint");
  EXPECT_THAT(text_of(checkpoint_lines(view_of(job), kNow)), HasSubstr("nothing is saved"));
  EXPECT_THAT(suspended_line(view_of(job)), HasSubstr("saves nothing"));
  EXPECT_THAT(suspended_line(view_of(running_job())), Not(HasSubstr("saves nothing")));
}

TEST(Views, FindThePodOfARank) {
  const JobView job = view_of(running_job());
  const auto plans = two_plans();
  const schedule::Plan* plan = plan_in_force(job, plans);

  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(*pod_of(job, plan, 1), "gpt-l4-1");
  EXPECT_EQ(pod_of(job, plan, 2).error().message,
            "--rank: plan 2 of gpt has the ranks 0 to 1, found 2");
  EXPECT_THAT(pod_of(job, nullptr, 0).error().message, HasSubstr("is gone"));
  json fresh = running_job();
  fresh.erase("status");
  EXPECT_THAT(pod_of(view_of(fresh), nullptr, 0).error().message, HasSubstr("no plan yet"));
}

}  // namespace views_test
}  // namespace weir::cli
