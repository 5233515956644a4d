// SPDX-License-Identifier: Apache-2.0
// A stage never guesses what a header means (worker/coordinator/README.md "Step header").
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/fakes.h"
#include "worker/engine/engine.h"
#include "worker/engine/step_header.h"

namespace weir::engine {
namespace header_rules_test {

using namespace std::chrono_literals;
using schedule::Codec;
using testing::HasSubstr;
using transport::Channel;
using transport::LinkEnd;

constexpr LinkEnd kActivationIn{.peer_stage = 0, .channel = Channel::kForward, .sending = false};
constexpr LinkEnd kGradientOut{.peer_stage = 0, .channel = Channel::kBackward, .sending = true};

schedule::Plan plan_of_revision(std::uint32_t revision) {
  schedule::Plan plan;
  plan.job_uid = "job";
  plan.revision = revision;
  plan.trigger = revision == 1 ? schedule::Trigger::kInitial : schedule::Trigger::kRetune;
  plan.schedule = {.family = schedule::Family::kKfkb,
                   .dispatch = schedule::Dispatch::kStrict,
                   .k = 1,
                   .micro_batch_size = 1,
                   .caps = {2, 1}};
  plan.micro_batches = {2};
  plan.stages = {{0, 0}, {1, 1}};
  plan.ranks = {{.pod = "w0", .ip = "10.0.0.7", .stage = 0, .data_port = 7071},
                {.pod = "w1", .ip = "-", .stage = 1}};
  return plan;
}

stage::Model two_layers() {
  stage::Model model;
  model.options.sequence = 1;
  model.layers = {{.id = "a"}, {.id = "b"}};
  return model;
}

// Runs stage 1 of two; the test is stage 0 and the coordinator.
struct LastStage {
  LastStage() {
    options.job_uid = "job";
    options.identity = {.pod = "w1"};
    options.total_steps = 2;
    options.rejoin_timeout = 0s;  // a broken generation ends the run
    options.progress_deadline = 30s;
  }

  Ending run() {
    if (!make_stage) {
      make_stage = [this] {
        return std::make_unique<test::FakeStage>(*device, journal, false, true);
      };
    }
    Parts parts{
        .model = model,
        .device = *device,
        .dataset = dataset,
        .clock = clock,
        .connect = [this](const transport::Generation& generation, auto,
                          auto) -> Result<std::unique_ptr<transport::Communicator>> {
          generations.push_back(generation);
          auto made = std::make_unique<test::ScriptedCommunicator>(nullptr, journal);
          made->on_wait = [this, peers = made.get()] { on_wait(*peers); };
          return std::unique_ptr<transport::Communicator>(std::move(made));
        },
        .make_stage = [this](int, int, stage::Initial) -> Result<std::unique_ptr<stage::Stage>> {
          return make_stage();
        }};
    Callbacks callbacks{
        .step_done = [this](const StepRecord& record) { records.push_back(record); },
        .send = [this](const protocol::Message& message) { on_message(message); }};
    engine = std::make_unique<Engine>(options, std::move(parts), std::move(callbacks));
    engine->mailbox().put(protocol::Prepare{plan});
    engine->mailbox().put(protocol::Commit{.revision = 1});
    return engine->run({});
  }

  void on_message(const protocol::Message& message) {
    if (const auto* ready = std::get_if<protocol::Ready>(&message)) {
      answers.push_back("READY " + std::to_string(ready->revision));
    } else if (const auto* reject = std::get_if<protocol::Reject>(&message)) {
      answers.push_back("REJECT " + std::to_string(reject->revision) + ": " + reject->reason);
      if (after_reject) after_reject();
    } else if (const auto* built = std::get_if<protocol::ReadyState>(&message)) {
      answers.push_back("READY_STATE " + std::to_string(built->revision) + built->error);
      engine->mailbox().put(protocol::Go{built->revision});
      if (after_start) after_start(engine->mailbox());
    } else if (const auto* peer = std::get_if<protocol::PeerLost>(&message)) {
      lost.push_back(peer->reason);
    }
  }

  SystemClock clock;
  std::unique_ptr<device::Device> device = device::make_host_device();
  stage::Model model = two_layers();
  test::NoData dataset;
  std::shared_ptr<test::Journal> journal = std::make_shared<test::Journal>();
  Options options;
  schedule::Plan plan = plan_of_revision(1);
  std::function<std::unique_ptr<stage::Stage>()> make_stage;  // null: a FakeStage
  std::unique_ptr<Engine> engine;
  std::function<void(Mailbox&)> after_start;
  std::function<void()> after_reject;
  std::function<void(test::ScriptedCommunicator&)> on_wait;

  std::vector<transport::Generation> generations;
  std::vector<StepRecord> records;
  std::vector<std::string> lost, answers;
};

std::string header_text(const StepHeader& header) {
  const StepHeaderBytes bytes = encode(header);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

StepHeader header_of(std::int64_t step, std::uint32_t revision) {
  return make_step_header("job", step, plan_of_revision(revision), 0, 0, 0);
}

// Before the errors of its headers.
const std::string kFromStageZero = "stage 0 at 10.0.0.7:7071, link 0-1 forward: ";

// Stage 0 sends these headers, one per step, with activations between them; then it closes.
std::function<void(test::ScriptedCommunicator&)> stage_zero(
    std::vector<std::string> headers,
    std::int64_t activation_bytes = test::FakeStage::kTensorBytes) {
  return [headers = std::move(headers), activation = std::string(activation_bytes, 'x'),
          next = std::size_t{0},
          acknowledged = std::size_t{0}](test::ScriptedCommunicator& peers) mutable {
    for (; acknowledged < peers.sent.size(); ++acknowledged) peers.acknowledge(kGradientOut);
    if (peers.posted.empty()) {
      peers.fail("stage 0 has closed");
    } else if (peers.posted.front().second.size() != kStepHeaderBytes) {
      peers.deliver(kActivationIn, activation);
    } else if (next < headers.size()) {
      peers.deliver(kActivationIn, headers[next++]);
    }
  };
}

TEST(StepHeaderRules, TrainWithHeadersThatFit) {
  LastStage rank;
  rank.on_wait = stage_zero({header_text(header_of(0, 1)), header_text(header_of(1, 1))});

  const Ending ending = rank.run();

  EXPECT_EQ(ending.exit, Exit::kFinished);
  EXPECT_EQ(rank.records.size(), 2U);
  EXPECT_THAT(rank.answers, testing::ElementsAre("READY 1", "READY_STATE 1"));
  EXPECT_TRUE(rank.lost.empty());
}

TEST(StepHeaderRules, BreakTheGenerationForAnythingThatDoesNotFit) {
  StepHeader other_job = header_of(0, 1);
  other_job.job ^= 1;
  StepHeader incarnation = header_of(0, 1);
  incarnation.incarnation = 3;
  StepHeader batches = header_of(0, 1);
  batches.micro_batches = 9;
  std::string broken = header_text(header_of(0, 1));
  broken[30] = static_cast<char>(broken[30] ^ 1);
  StepHeader samples = header_of(0, 1);
  samples.micro_batch_size = 5;
  StepHeader groups = header_of(0, 1);
  groups.k = 2;
  StepHeader forward = header_of(0, 1);
  forward.forward = Codec::kInt8;
  StepHeader backward = header_of(0, 1);
  backward.backward = Codec::kInt6;
  StepHeader later = header_of(0, 1);
  later.backward = static_cast<Codec>(7);
  std::string strange = header_text(header_of(0, 1));
  strange[0] = 'X';
  const auto text = [](std::uint32_t number) { return std::to_string(number); };
  struct Case {
    std::string header, reason;
  };
  const std::vector<Case> cases = {
      {header_text(header_of(0, 7)), "step header: epoch 7 was never prepared"},
      {header_text(header_of(5, 1)), "step header: step is 5, expected 0"},
      {header_text(other_job),
       "step header: job is " + text(other_job.job) + ", expected " + text(header_of(0, 1).job)},
      {header_text(incarnation), "step header: incarnation is 3, expected 0"},
      {header_text(batches), "step header: micro-batches is 9, expected 2"},
      {header_text(samples), "step header: micro-batch size is 5, expected 1"},
      {header_text(groups), "step header: k is 2, expected 1"},
      {header_text(forward), "step header: forward codec is Int8, expected Raw"},
      {header_text(backward), "step header: backward codec is Int6, expected Raw"},
      {header_text(later), "step header has a codec that is not known to this worker, number 7"},
      {broken, "step header has a wrong checksum"},
      {strange, "step header has a wrong magic number"},
  };
  for (const Case& one : cases) {
    LastStage rank;
    rank.on_wait = stage_zero({one.header});

    const Ending ending = rank.run();

    EXPECT_EQ(ending.exit, Exit::kPeerLost) << one.reason;
    ASSERT_EQ(rank.lost.size(), 1U) << one.reason;
    EXPECT_EQ(rank.lost[0], kFromStageZero + one.reason);
    EXPECT_TRUE(rank.records.empty());
  }
}

TEST(StepHeaderRules, RefuseAPreparedPlanOfAnotherGeneration) {
  LastStage rank;
  schedule::Plan other = plan_of_revision(2);
  other.trigger = schedule::Trigger::kRestart;
  other.state = schedule::StateMove::kCheckpoint;
  rank.after_start = [&](Mailbox& mailbox) { mailbox.put(protocol::Prepare{other}); };
  rank.on_wait = stage_zero({header_text(header_of(0, 2))});

  EXPECT_EQ(rank.run().exit, Exit::kPeerLost);

  EXPECT_THAT(rank.answers, testing::Contains("READY 2"));
  EXPECT_EQ(rank.lost.at(0), kFromStageZero + "step header: epoch 2 belongs to another generation");
}

// 33 numbers have 66 bytes in BF16 and in Int8, so the sizes of messages do not tell these apart.
TEST(StepHeaderRules, TellCodecsApartWhoseMessagesHaveEqualSizes) {
  constexpr std::int64_t kNumbers = 33;
  ASSERT_EQ(schedule::encoded_bytes(Codec::kBf16, kNumbers, 4),
            schedule::encoded_bytes(Codec::kInt8, kNumbers, 4));
  struct Narrow : test::FakeStage {
    using FakeStage::FakeStage;
    std::int64_t input_bytes(int samples) const override { return samples * kNumbers * 4; }
    Result<device::Buffer> backward(int micro_batch, const device::Buffer& gradient) override {
      WEIR_OK(FakeStage::backward(micro_batch, gradient));
      return device().allocate(kNumbers * 4);
    }
  };
  for (const Codec of_peer : {Codec::kBf16, Codec::kInt8}) {
    LastStage rank;
    rank.options.total_steps = 1;
    rank.make_stage = [&] {
      return std::make_unique<Narrow>(*rank.device, rank.journal, false, true);
    };
    schedule::Plan plan = plan_of_revision(1);
    plan.codecs = {.forward = {of_peer}, .backward = {Codec::kRaw}};
    const std::string header = header_text(make_step_header("job", 0, plan, 0, 0, 0));
    plan.codecs.forward = {Codec::kBf16};
    rank.plan = plan;
    rank.on_wait = stage_zero({header}, schedule::encoded_bytes(of_peer, kNumbers, 4));

    const Ending ending = rank.run();

    if (of_peer == Codec::kBf16) {
      EXPECT_EQ(ending.exit, Exit::kFinished);
      continue;
    }
    EXPECT_EQ(ending.exit, Exit::kPeerLost);
    EXPECT_TRUE(rank.records.empty());
    EXPECT_EQ(rank.lost.at(0),
              kFromStageZero + "step header: forward codec is Int8, expected BF16");
  }
}

TEST(StepHeaderRules, AdoptAPreparedPlanInTheStepThatNamesIt) {
  LastStage rank;
  rank.after_start = [&](Mailbox& mailbox) { mailbox.put(protocol::Prepare{plan_of_revision(2)}); };
  rank.on_wait = stage_zero({header_text(header_of(0, 1)), header_text(header_of(1, 2))});

  EXPECT_EQ(rank.run().exit, Exit::kFinished);

  ASSERT_EQ(rank.records.size(), 2U);
  EXPECT_EQ(rank.records[0].epoch, 1U);
  EXPECT_EQ(rank.records[1].epoch, 2U);
  EXPECT_EQ(rank.engine->statistics().epoch, 2U);
}

TEST(StepHeaderRules, RefuseAnEpochThatWasAborted) {
  LastStage rank;
  rank.after_start = [&](Mailbox& mailbox) {
    mailbox.put(protocol::Prepare{plan_of_revision(2)});
    mailbox.put(protocol::Abort{2});
  };
  rank.on_wait = stage_zero({header_text(header_of(0, 2))});

  EXPECT_EQ(rank.run().exit, Exit::kPeerLost);

  EXPECT_THAT(rank.lost.at(0), HasSubstr("epoch 2 was never prepared"));
}

TEST(Prepare, RefusesAnIllegalPlanWithTheBrokenRules) {
  schedule::Plan plan = plan_of_revision(2);
  plan.schedule.caps = {1, 2};
  LastStage rank;
  rank.after_start = [&](Mailbox& mailbox) { mailbox.put(protocol::Prepare{plan}); };
  rank.on_wait = stage_zero({header_text(header_of(0, 1)), header_text(header_of(1, 1))});

  EXPECT_EQ(rank.run().exit, Exit::kFinished);

  EXPECT_THAT(rank.answers, testing::Contains(HasSubstr("REJECT 2: ")));
  EXPECT_THAT(rank.answers.back(), HasSubstr("caps"));
}

TEST(Prepare, RefusesAnInBandChangeOfABrokenGeneration) {
  LastStage rank;
  rank.options.rejoin_timeout = 30s;
  rank.after_reject = [&] { rank.engine->leave(0s); };
  rank.on_wait = [&](test::ScriptedCommunicator& peers) {
    peers.fail("stage 0 has closed");
    rank.engine->mailbox().put(protocol::PeerLost{.reason = "said by the coordinator"});
    rank.engine->mailbox().put(protocol::Prepare{plan_of_revision(2)});
  };

  EXPECT_EQ(rank.run().exit, Exit::kTerminated);

  EXPECT_THAT(rank.answers.back(), HasSubstr("only a rejoin"));
}

TEST(Engine, DropsTheStepWhenTheCoordinatorSaysThatAPeerIsLost) {
  LastStage rank;
  rank.on_wait = [&](test::ScriptedCommunicator&) {
    rank.engine->mailbox().put(protocol::PeerLost{.reason = "stage 0 is silent"});
  };

  const Ending ending = rank.run();

  EXPECT_EQ(ending.exit, Exit::kPeerLost);
  EXPECT_TRUE(rank.lost.empty());  // the coordinator knows already
}

TEST(Engine, LeavesSoonFromAStepThatAPeerHasLeft) {
  LastStage rank;
  rank.on_wait = [&, stage_0 = stage_zero({header_text(header_of(0, 1))}),
                  waits = 0](test::ScriptedCommunicator& peers) mutable {
    if (++waits <= 2) return stage_0(peers);  // the header and one activation of two
    rank.engine->leave(30s);
    peers.left = {kActivationIn};
  };
  const auto begin = std::chrono::steady_clock::now();

  EXPECT_EQ(rank.run().exit, Exit::kTerminated);

  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "the grace was waited for";
  EXPECT_TRUE(rank.records.empty());
}

TEST(Engine, DoesTheStepThatTheStageBeforeBeginsBeforeItLeaves) {
  LastStage rank;
  rank.options.total_steps = 100;
  rank.on_wait = [&, stage_0 = stage_zero({header_text(header_of(0, 1)),
                                           header_text(header_of(1, 1))})](auto& peers) mutable {
    rank.engine->leave(30s);  // while it waits for the first header
    stage_0(peers);
  };

  EXPECT_EQ(rank.run().exit, Exit::kTerminated);

  EXPECT_EQ(rank.records.size(), 1U);
}

TEST(Engine, FinishesItsLastStepThoughALaterStageIsGoneAlready) {
  LastStage rank;
  rank.options.total_steps = 100;
  rank.on_wait =
      [&, stage_0 = stage_zero({header_text(header_of(0, 1)), header_text(header_of(1, 1))}),
       waits = 0](auto& peers) mutable {
        if (++waits == 2) {  // within the step
          rank.engine->leave(30s);
          rank.engine->mailbox().put(protocol::PeerLost{.reason = "said by the coordinator"});
        }
        stage_0(peers);
      };

  EXPECT_EQ(rank.run().exit, Exit::kTerminated);

  EXPECT_EQ(rank.records.size(), 1U);
}

TEST(Engine, DoesNotWaitForAHeaderOfAStageThatHasLeft) {
  LastStage rank;
  rank.on_wait = [&](test::ScriptedCommunicator& peers) {
    rank.engine->leave(30s);
    peers.left = {kActivationIn};
  };
  const auto begin = std::chrono::steady_clock::now();

  EXPECT_EQ(rank.run().exit, Exit::kTerminated);

  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(Engine, EndsWhenNoPlanComesInTime) {
  LastStage rank;
  rank.options.startup_timeout = 0s;
  Engine alone(rank.options,
               Parts{.model = rank.model,
                     .device = *rank.device,
                     .dataset = rank.dataset,
                     .clock = rank.clock},
               {});

  EXPECT_EQ(alone.run({}).exit, Exit::kCrash);
}

TEST(Engine, WaitsForAPlanAsLongAsThoseWhoMakePlansAnswer) {
  LastStage rank;
  rank.options.startup_timeout = 0s;
  int answers = 3;
  Engine alone(rank.options,
               Parts{.model = rank.model,
                     .device = *rank.device,
                     .dataset = rank.dataset,
                     .clock = rank.clock},
               {.in_touch = [&] { return answers-- > 0; }});

  const Ending ending = alone.run({});

  EXPECT_EQ(ending.exit, Exit::kCrash);
  EXPECT_LT(answers, 0);
  EXPECT_NE(ending.message.find("--startup-timeout"), std::string::npos) << ending.message;
}

}  // namespace header_rules_test
}  // namespace weir::engine
