// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/emulate/emulate.h"

namespace weir::emulate {
namespace blocking_sends_test {

using transport::Channel;
using transport::Completion;
using transport::LinkEnd;

constexpr LinkEnd kForward{.peer_stage = 1, .channel = Channel::kForward, .sending = true};
constexpr LinkEnd kBackward{.peer_stage = 0, .channel = Channel::kBackward, .sending = true};

// Tells what a test has put in, in that order.
class Scripted final : public transport::Communicator {
 public:
  explicit Scripted(std::deque<Completion>& script) : script_(script) {}
  void send(const LinkEnd&, device::Buffer, std::size_t) override {}
  void receive(const LinkEnd&, device::Buffer, std::size_t) override {}
  std::optional<Completion> wait(std::chrono::steady_clock::time_point, std::stop_token) override {
    if (script_.empty()) return std::nullopt;
    Completion first = script_.front();
    script_.pop_front();
    return first;
  }
  std::vector<transport::LinkReport> reports() const override { return {}; }
  void abort(const std::string&) noexcept override {}

 private:
  std::deque<Completion>& script_;
};

Completion sent(const LinkEnd& end) {
  return {.kind = Completion::Kind::kSent, .end = end, .sequence = 0, .reason = ""};
}

struct BlockingSends : testing::Test {
  std::deque<Completion> script;
  std::unique_ptr<transport::Communicator> with_window(int window) {
    return around(std::make_unique<Scripted>(script), window);
  }
  static Completion next(transport::Communicator& communicator) {
    const auto completion = communicator.wait({}, {});
    return completion.value_or(Completion{
        .kind = Completion::Kind::kFailed, .end = {}, .sequence = 0, .reason = "nothing there"});
  }
};

TEST_F(BlockingSends, WaitsForItsOwnChannelAndKeepsWhatElseCame) {
  const auto communicator = with_window(0);
  Completion received = sent({.peer_stage = 1, .channel = Channel::kBackward, .sending = false});
  received.kind = Completion::Kind::kReceived;
  script = {received, sent(kForward), sent(kBackward)};

  communicator->send(kForward, {}, 0);

  EXPECT_EQ(script.size(), 1U) << "it read up to the end of its own transfer and no further";
  EXPECT_EQ(next(*communicator).kind, Completion::Kind::kReceived);
  EXPECT_EQ(next(*communicator).end, kForward);
  EXPECT_EQ(next(*communicator).end, kBackward);
  EXPECT_EQ(next(*communicator).reason, "nothing there");
}

TEST_F(BlockingSends, AWindowLetsThatManyGoOnEachChannel) {
  const auto communicator = with_window(1);
  script = {sent(kForward)};

  communicator->send(kForward, {}, 0);
  communicator->send(kBackward, {}, 0);
  EXPECT_EQ(script.size(), 1U) << "one on each channel blocks nothing";
  communicator->send(kForward, {}, 0);
  EXPECT_TRUE(script.empty());
}

TEST_F(BlockingSends, WhatWaitTookMakesRoom) {
  const auto communicator = with_window(0);
  script = {sent(kForward)};
  communicator->send(kForward, {}, 0);
  script = {sent(kForward)};
  communicator->send(kForward, {}, 0);
  EXPECT_EQ(next(*communicator).kind, Completion::Kind::kSent);
  EXPECT_EQ(next(*communicator).kind, Completion::Kind::kSent);
}

TEST_F(BlockingSends, ABrokenGenerationHoldsNobody) {
  const auto communicator = with_window(0);
  script = {{.kind = Completion::Kind::kFailed, .end = {}, .sequence = 0, .reason = "lost"}};

  communicator->send(kForward, {}, 0);

  EXPECT_EQ(next(*communicator).reason, "lost");
}

}  // namespace blocking_sends_test
}  // namespace weir::emulate
