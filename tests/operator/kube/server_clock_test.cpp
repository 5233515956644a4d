// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/server_clock.h"

#include <gtest/gtest.h>

#include "operator/kube/auth.h"
#include "operator/kube/client.h"
#include "worker/http/transport.h"

namespace weir::kube {
namespace server_clock_test {

using namespace std::chrono_literals;  // NOLINT: tests

// 2026-11-22 02:40:23
constexpr SystemTime kTime{std::chrono::seconds(1'795'315'223)};
constexpr auto kDate = "Sun, 22 Nov 2026 02:40:23 GMT";

class Machine final : public Clock {
 public:
  SteadyTime now() const override { return steady; }
  SystemTime system_now() const override { return wall; }
  bool sleep_until(SteadyTime, std::stop_token) override { return true; }
  void pass(std::chrono::nanoseconds by) {
    steady += by;
    wall += std::chrono::duration_cast<SystemTime::duration>(by);
  }
  SteadyTime steady{1h};
  SystemTime wall = kTime;
};

// One request that takes so long.
void ask(Machine& machine, ServerClock& clock, const std::string& date,
         std::chrono::milliseconds took) {
  const SteadyTime sent = machine.now();
  machine.pass(took);
  clock.saw(date, sent, machine.now());
}

TEST(ServerClock, IsTheMachinesUntilTheFirstAnswer) {
  Machine machine;
  const ServerClock clock(machine);
  machine.wall += 1h;
  EXPECT_EQ(clock.system_now(), kTime + 1h);
}

TEST(ServerClock, AgreesWithAMachineThatIsRight) {
  Machine machine;
  ServerClock clock(machine);
  machine.pass(400ms);
  ask(machine, clock, kDate, 10ms);
  EXPECT_EQ(clock.system_now(), machine.wall);
}

TEST(ServerClock, CorrectsAMachineThatIsAnHourAheadOrBehind) {
  for (const auto wrong : {3600s, -3600s}) {
    Machine machine;
    ServerClock clock(machine);
    machine.wall += wrong;
    ask(machine, clock, kDate, 20ms);
    EXPECT_GE(clock.system_now(), kTime);
    EXPECT_LE(clock.system_now(), kTime + 1020ms);
  }
}

TEST(ServerClock, GoesOnWhenTheMachinesWallClockJumps) {
  Machine machine;
  ServerClock clock(machine);
  ask(machine, clock, kDate, 10ms);
  machine.wall += 1h;
  machine.pass(30s);
  EXPECT_EQ(clock.system_now(), kTime + 30s + 10ms);
}

TEST(ServerClock, ASlowAnswerMovesNothing) {
  Machine machine;
  ServerClock clock(machine);
  ask(machine, clock, kDate, 10ms);
  ask(machine, clock, "Sun, 22 Nov 2026 02:40:24 GMT", 25s);  // written early, came late
  EXPECT_EQ(clock.system_now(), kTime + 25s + 10ms);
}

TEST(ServerClock, StaysWithOneOfSeveralServersAndFollowsALastingJump) {
  Machine machine;
  ServerClock clock(machine);
  ask(machine, clock, kDate, 10ms);
  for (int i = 0; i < 50; ++i) {  // the other server is ten seconds ahead
    ask(machine, clock, i % 3 == 0 ? kDate : "Sun, 22 Nov 2026 02:40:33 GMT", 1ms);
    EXPECT_LE(clock.system_now(), kTime + 1s);
  }
  for (int i = 0; i < 16; ++i) ask(machine, clock, "Sun, 22 Nov 2026 02:40:33 GMT", 1ms);
  EXPECT_GE(clock.system_now(), kTime + 10s) << "the first server is gone";
}

TEST(ServerClock, IgnoresWhatIsNoDate) {
  Machine machine;
  ServerClock clock(machine);
  for (const char* text : {"", "now", "Sun, 22 Nov 2026 02:40:23", "2026-11-22T02:40:23Z"}) {
    ask(machine, clock, text, 0ms);
  }
  machine.wall += 1h;
  EXPECT_EQ(clock.system_now(), kTime + 1h);
}

class DatedServer final : public http::Transport {
 public:
  explicit DatedServer(Machine& machine) : machine_(machine) {}
  Result<http::Response> send(const http::Request&, http::Deadline, std::stop_token) override {
    machine_.pass(5ms);
    return http::Response{.status = 404, .headers = {{"Date", kDate}}, .body = "{}"};
  }
  Result<http::Response> stream(const http::Request&, std::stop_token,
                                const std::function<void(std::string_view)>&) override {
    return Error{Code::kUnavailable, "no streams"};
  }

 private:
  Machine& machine_;
};

TEST(ServerClock, IsSetByTheAnswersOfAClient) {
  Machine machine;
  machine.wall += 1h;
  ServerClock clock(machine);
  DatedServer server(machine);
  TokenSource token("secret", "", clock);
  const auto client =
      make_client(server, token, clock,
                  {.on_date = [&clock](const std::string& date, SteadyTime sent,
                                       SteadyTime received) { clock.saw(date, sent, received); }});
  EXPECT_FALSE(client->get(pods(), "a", "p"));
  EXPECT_LE(clock.system_now(), kTime + 2s);
}

}  // namespace server_clock_test
}  // namespace weir::kube
