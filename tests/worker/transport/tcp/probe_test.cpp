// SPDX-License-Identifier: Apache-2.0
// Timing the network to a peer: what a limited link carries, whoever may not ask, and every way in
// which it must end with a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/rig.h"

namespace weir::transport::test {
namespace probe_test {

using testing::HasSubstr;

constexpr std::int64_t kBytes = 4 * 1024 * 1024;

TcpOptions of_job(std::string uid = "job-1", std::string key = "a key of this job") {
  TcpOptions options;
  options.job_uid = std::move(uid);
  options.job_key = std::move(key);
  return options;
}

std::unique_ptr<TcpTransport> limited_to(double bytes_per_second, int boundary = -1) {
  TcpOptions options = of_job();
  options.pacing.push_back(
      {.bytes_per_second = bytes_per_second, .trace = {}, .boundary = boundary});
  return make_transport(options);
}

Result<ProbedRate> probe(TcpTransport& who, int port, std::chrono::nanoseconds limit = 30s) {
  return who.probe(address(0, port), kBytes, soon(limit), {});
}

TEST(Probe, FindsWhatALimitedLinkCarries) {
  const auto peer = make_transport(of_job());
  const auto slow = limited_to(40e6);  // 0.1 s
  const auto rate = probe(*slow, peer->data_port());
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_LT(rate->bytes_per_second, 80e6);  // a late first read shortens its time
  EXPECT_GT(rate->bytes_per_second, 20e6) << "half of it, on a starved machine";
  EXPECT_GT(rate->rtt_seconds, 0);
}

TEST(Probe, OfOneByteTellsTheRoundTripOnly) {
  const auto peer = make_transport(of_job()), rank = make_transport(of_job());
  const auto rate = rank->probe(address(0, peer->data_port()), 1, soon(), {});
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_EQ(rate->bytes_per_second, 0);
  EXPECT_GT(rate->rtt_seconds, 0);
}

TEST(Probe, TakesNoLongerOnASlowLinkAndStillFindsItsRate) {
  const auto peer = make_transport(of_job());
  const auto slow = limited_to(4e6);  // 1 s for all; timed for half a second
  const auto begin = std::chrono::steady_clock::now();
  const auto rate = probe(*slow, peer->data_port());
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_LT(rate->bytes_per_second, 6e6);
  EXPECT_GT(rate->bytes_per_second, 2e6);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(Probe, IsNotLimitedWhereOneLinkOfThePipelineIs) {
  const auto peer = make_transport(of_job());
  const auto rank = limited_to(4e6, 1);  // nobody knows yet who will be at boundary 1
  const auto rate = probe(*rank, peer->data_port());
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_GT(rate->bytes_per_second, 8e6);
}

TEST(Probe, WorksBesideLinksThatStand) {
  Pipeline pipeline(2, {of_job(), of_job()});
  ASSERT_TRUE(pipeline.ranks[0] && pipeline.ranks[1]);
  const auto rate = probe(*pipeline.transports[0], pipeline.transports[1]->data_port());
  ASSERT_TRUE(rate) << rate.error().message;

  const device::Buffer sent = pattern(1000, 3), got = make_buffer(1000);
  pipeline.ranks[1]->receive(from(0), got, 1000);
  pipeline.ranks[0]->send(to(1), sent, 1000);
  const auto received = next(*pipeline.ranks[1]);
  EXPECT_EQ(received.kind, Completion::Kind::kReceived) << received.reason;
  EXPECT_TRUE(equal(sent, got));
}

TEST(Probe, AnswersOnlyWhoHoldsTheKeyOfTheJob) {
  const auto peer = make_transport(of_job()), keyless = make_transport();
  const auto stranger = make_transport(of_job("job-1", "another key"));
  const auto neighbour = make_transport(of_job("job-2"));
  for (const auto& [who, whom] :
       {std::pair(stranger.get(), peer.get()), std::pair(neighbour.get(), peer.get()),
        std::pair(peer.get(), keyless.get())}) {
    const auto rate = probe(*who, whom->data_port());
    ASSERT_FALSE(rate);
    EXPECT_EQ(rate.error().code, Code::kForbidden) << rate.error().message;
  }
}

TEST(Probe, TellsWhyNothingCame) {
  const auto rank = make_transport(of_job());
  int closed = 0;
  {
    closed = make_transport()->data_port();
  }
  const auto nobody = probe(*rank, closed, 100ms);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, Code::kTimeout);
  EXPECT_THAT(nobody.error().message, HasSubstr("refused"));

  std::stop_source stop;
  stop.request_stop();
  const auto stopped = rank->probe(address(0, closed), kBytes, soon(), stop.get_token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

}  // namespace probe_test
}  // namespace weir::transport::test
