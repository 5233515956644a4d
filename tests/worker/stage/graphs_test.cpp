// SPDX-License-Identifier: Apache-2.0
// When a pass runs as a graph: decisions, and a runner over kernels whose times the test sets.
#include "worker/stage/graphs.h"

#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/device_around.h"
#include "tests/support/manual_clock.h"
#include "worker/device/caching_allocator.h"

namespace weir::stage {
namespace graphs_test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr nanoseconds kNever = nanoseconds::max();

TEST(WaysToRunAPass, BeginOpByOpAndEndWithTheFaster) {
  const auto as_graph = [](Ways::Way ops, Ways::Way graph) {
    return runs_as_graph({.ops = ops, .graph = graph}, GraphUse::kWhereFaster);
  };
  EXPECT_FALSE(as_graph({0, kNever}, {0, kNever}));
  EXPECT_FALSE(as_graph({3, 5us}, {0, kNever})) << "two timed runs";
  EXPECT_TRUE(as_graph({4, 5us}, {0, kNever})) << "the graph's turn";
  EXPECT_TRUE(as_graph({4, 5us}, {3, 9us}));
  EXPECT_FALSE(as_graph({4, 5us}, {4, 9us}));
  EXPECT_TRUE(as_graph({4, 5us}, {4, 4us}));
}

TEST(WaysToRunAPass, AreAsTheUserSays) {
  EXPECT_FALSE(runs_as_graph({.ops = {9, 5us}, .graph = {}}, GraphUse::kOff));
  EXPECT_FALSE(runs_as_graph({}, GraphUse::kAlways)) << "it may never come again";
  EXPECT_TRUE(runs_as_graph({.ops = {1, kNever}, .graph = {9, 9us}}, GraphUse::kAlways));
}

// Each op and each launch of a graph takes time that the test sets; what ran is written down.
class FakeKernels final : public ops::Kernels {
 public:
  explicit FakeKernels(test::ManualClock& clock) : clock_(clock) {}
  void run(const ops::Op& op) override {
    ran_.push_back(name_of(op));
    clock_.advance(op_time);
  }
  bool makes_graphs() const override { return true; }
  Result<std::unique_ptr<ops::Graph>> make_graph(std::span<const ops::Op> ops) override {
    if (refuses) return Error{Code::kInternal, "the device refuses"};
    ++graphs_made;
    return std::unique_ptr<ops::Graph>(std::make_unique<FakeGraph>(*this, ops.size()));
  }
  Status status() const override { return state; }

  std::vector<std::string> take_ran() { return std::exchange(ran_, {}); }
  void write_down(std::string what) { ran_.push_back(std::move(what)); }

  nanoseconds op_time = 10us, graph_time = 15us;
  bool refuses = false;
  int graphs_made = 0;
  Status state = Unit{};

 private:
  class FakeGraph final : public ops::Graph {
   public:
    FakeGraph(FakeKernels& kernels, std::size_t ops) : kernels_(kernels), ops_(ops) {}
    Status launch() override {
      kernels_.ran_.push_back("graph of " + std::to_string(ops_));
      kernels_.clock_.advance(kernels_.graph_time);
      return Unit{};
    }

   private:
    FakeKernels& kernels_;
    const std::size_t ops_;
  };

  test::ManualClock& clock_;
  std::vector<std::string> ran_;
};

// 3 MiB behind an allocator that keeps what is free; writes down when it goes back.
class KeepingDevice final : public test::DeviceAround {
 public:
  explicit KeepingDevice(FakeKernels& kernels)
      : DeviceAround("keeping"),
        memory_({.allocate = [this](std::size_t bytes) -> std::byte* {
                   if (held_ + bytes > 3 * kMiB) return nullptr;
                   held_ += bytes;
                   return new std::byte[bytes];
                 },
                 .release =
                     [this, &kernels](std::byte* block) {
                       held_ -= kMiB;
                       kernels.write_down("given back");
                       delete[] block;
                     }}) {}
  device::Buffer allocate(std::size_t bytes) override {
    std::byte* const block = memory_.allocate(bytes);
    if (block == nullptr) return {};
    return {std::shared_ptr<std::byte>(block,
                                       [this, bytes](std::byte* own) { memory_.free(own, bytes); }),
            bytes};
  }
  std::shared_ptr<void> ask_before_trim(std::function<bool()> may) override {
    return memory_.ask_before_trim(std::move(may));
  }

  static constexpr std::size_t kMiB = std::size_t{1} << 20U;

 private:
  std::size_t held_ = 0;
  device::CachingAllocator memory_;
};

class Runner : public testing::Test {
 protected:
  using Ran = std::vector<std::string>;
  const Ran kOps = {"Zero", "RoundSums"}, kGraph = {"graph of 2"};

  static constexpr PassKind kForward{.part = PassPart::kForward, .samples = 2};

  void SetUp() override {
    runner_.begin(kForward).run(ops::Copy{nullptr, nullptr, 0});
    EXPECT_EQ(kernels_.take_ran(), Ran{"Copy"}) << "the first of its kind, at once";
    EXPECT_TRUE(runner_.run());
  }
  // A pass of two ops on memory there; what ran.
  Ran pass(std::size_t place = 0) {
    ops::Kernels& ops = runner_.begin(kForward);
    ops.run(ops::Zero{&memory_[place], 1});
    ops.run(ops::RoundSums{1, nullptr, &memory_[place]});
    EXPECT_TRUE(runner_.run());
    return kernels_.take_ran();
  }

  test::ManualClock clock_;
  FakeKernels kernels_{clock_};
  KeepingDevice device_{kernels_};
  GraphRunner runner_{kernels_, device_, clock_, GraphUse::kWhereFaster};
  std::vector<float> memory_ = std::vector<float>(4 * GraphRunner::kMostPasses);
};

TEST_F(Runner, LaunchesAPassThatComesAgainAsAGraphWhenThatIsFaster) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pass(), kOps);
  EXPECT_EQ(kernels_.graphs_made, 0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pass(), kGraph);
  EXPECT_EQ(kernels_.graphs_made, 1);
  EXPECT_EQ(runner_.launches(), 20);
}

TEST_F(Runner, ReturnsToOpByOpWhenTheGraphIsSlower) {
  kernels_.graph_time = 21us;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pass(), kOps);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pass(), kGraph) << "timed";
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pass(), kOps);
  EXPECT_EQ(runner_.launches(), 4);
}

TEST_F(Runner, DoesNotCountTheRunsThatPrepareThings) {
  kernels_.graph_time = 1s;
  for (int i = 0; i < 4; ++i) pass();
  EXPECT_EQ(pass(), kGraph);  // the first launch: slow
  kernels_.graph_time = 1us;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pass(), kGraph);
}

TEST_F(Runner, NeverLaunchesAGraphForOtherMemory) {
  for (int i = 0; i < 6; ++i) pass();
  EXPECT_EQ(pass(0), kGraph);
  EXPECT_EQ(pass(1), kOps);
  EXPECT_EQ(pass(0), kGraph);
}

TEST_F(Runner, ForgetsWhatABrokenPassHadCalled) {
  runner_.begin(kForward).run(ops::Zero{memory_.data(), 7});  // its layer found no memory
  EXPECT_EQ(pass(), kOps);
}

TEST_F(Runner, CallsTheFirstPassOfAKindAtOnceForItsScratch) {
  runner_.begin({.part = PassPart::kBackward, .samples = 2}).run(ops::Zero{memory_.data(), 1});
  EXPECT_EQ(kernels_.take_ran(), Ran{"Zero"});
  EXPECT_TRUE(runner_.run());
  runner_.begin({.part = PassPart::kForward, .samples = 3}).run(ops::Zero{memory_.data(), 1});
  EXPECT_EQ(kernels_.take_ran(), Ran{"Zero"});
  EXPECT_TRUE(runner_.run());
  for (const PassPart part : {PassPart::kBackwardInput, PassPart::kBackwardWeights}) {
    runner_.begin({.part = part, .samples = 2}).run(ops::Zero{memory_.data(), 1});
    EXPECT_EQ(kernels_.take_ran(), Ran{"Zero"});
    EXPECT_TRUE(runner_.run());
  }
  runner_.begin({.part = PassPart::kBackward, .samples = 2}).run(ops::Zero{memory_.data(), 1});
  EXPECT_EQ(kernels_.take_ran(), Ran{});
}

// Their memory is free, but ops that were not enqueued mean it.
TEST_F(Runner, EnqueuesOpsBeforeTheirMemoryGoesBackToTheDriver) {
  ops::Kernels& ops = runner_.begin(kForward);
  {
    const device::Buffer work = device_.allocate(KeepingDevice::kMiB);
    ops.run(ops::Zero{work.as<float>(), 1});
  }
  EXPECT_EQ(kernels_.take_ran(), Ran{});
  const device::Buffer large = device_.allocate(3 * KeepingDevice::kMiB);
  ASSERT_TRUE(large);
  EXPECT_EQ(kernels_.take_ran(), (Ran{"Zero", "given back"}));
  ops.run(ops::RoundSums{1, nullptr, large.as<float>()});
  EXPECT_TRUE(runner_.run());
  EXPECT_EQ(kernels_.take_ran(), Ran{"RoundSums"});
}

TEST_F(Runner, LetsNoOtherThreadGiveBackWhatWaitingOpsMean) {
  ops::Kernels& ops = runner_.begin(kForward);
  ops.run(ops::Zero{device_.allocate(KeepingDevice::kMiB).as<float>(), 1});
  const auto there_is_memory = [&] {
    return std::async(std::launch::async,
                      [&] { return static_cast<bool>(device_.allocate(3 * KeepingDevice::kMiB)); })
        .get();
  };
  EXPECT_FALSE(there_is_memory());
  EXPECT_EQ(kernels_.take_ran(), Ran{});
  EXPECT_TRUE(runner_.run());
  EXPECT_TRUE(there_is_memory());
}

TEST_F(Runner, GoesOnOpByOpWhenTheDeviceRefusesAGraph) {
  kernels_.refuses = true;
  for (int i = 0; i < 12; ++i) EXPECT_EQ(pass(), kOps);
  EXPECT_TRUE(runner_.given_up());
  EXPECT_EQ(&runner_.begin(kForward), &kernels_);
}

TEST_F(Runner, GivesUpWhenAddressesNeverComeAgain) {
  for (std::size_t i = 0; i < 3 * GraphRunner::kMostPasses; ++i) EXPECT_EQ(pass(i), kOps);
  EXPECT_TRUE(runner_.given_up());
}

TEST_F(Runner, KeepsThePassesThatComeAgainAmongOthersThatDoNot) {
  for (std::size_t i = 1; i < 4 * GraphRunner::kMostPasses; ++i) {
    pass(i);
    const Ran ran = pass(0);
    if (i > 10) {
      EXPECT_EQ(ran, kGraph);
    }
  }
  EXPECT_FALSE(runner_.given_up());
}

TEST_F(Runner, TellsWhatFailed) {
  ops::Kernels& ops = runner_.begin(kForward);
  ops.run(ops::Zero{memory_.data(), 1});
  kernels_.state = Error{Code::kInternal, "a launch failed"};
  const Status ran = runner_.run();
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().message, "a launch failed");
}

}  // namespace graphs_test
}  // namespace weir::stage
