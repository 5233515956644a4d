// SPDX-License-Identifier: Apache-2.0
// Making the links of a generation: what goes wrong is named, ends in time and leaves nothing open.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/nccl/nccl_rig.h"

namespace weir::transport::test {
namespace introduction_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kShort = 2s;

// Whoever is first to see it says why; the other may see no more than a closed connection.
std::string both(const std::vector<Connected>& joined) {
  std::string text;
  for (const Connected& one : joined) {
    EXPECT_FALSE(one);
    if (!one) text += one.error().message + "\n";
  }
  return text;
}

void expect_closed(const NcclPipeline& pipeline) {
  for (const auto& host : pipeline.hosts) EXPECT_EQ(host->api->aborted(), host->api->opened());
}

TEST(NcclIntroduction, MakesTwoLinksPerNeighbour) {
  NcclPipeline pipeline(3);

  pipeline.connect();

  EXPECT_EQ(pipeline.hosts[0]->api->opened(), 2);
  EXPECT_EQ(pipeline.hosts[1]->api->opened(), 4);
  EXPECT_EQ(pipeline.hosts[2]->api->opened(), 2);
  pipeline.ranks.clear();
  expect_closed(pipeline);
}

TEST(NcclIntroduction, StagesOnOneGpuAreToldSo) {
  NcclPipeline pipeline(2);
  nccl::Facts facts = pipeline.hosts[1]->api->facts();
  facts.gpu = pipeline.hosts[0]->api->facts().gpu;
  pipeline.hosts[1]->api->set_facts(facts);

  const auto joined = pipeline.join();

  EXPECT_THAT(both(joined), AllOf(HasSubstr("stage 1 at"), HasSubstr("stage 0 at"),
                                  HasSubstr("uses the same GPU as this worker (GPU-0)")));
  EXPECT_EQ(pipeline.hosts[0]->api->opened(), 0);
}

TEST(NcclIntroduction, AnInitThatNeverFinishesEndsAtTheDeadlineAndIsNamed) {
  NcclPipeline pipeline(2);
  pipeline.hosts[1]->api->faults().init_hangs = true;
  const Time begin = std::chrono::steady_clock::now();

  const auto joined = pipeline.join(1, kShort);

  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_THAT(both(joined), AllOf(HasSubstr("stage 0 at"), HasSubstr("link 0-1"),
                                  HasSubstr("did not come in time")));
  expect_closed(pipeline);
}

TEST(NcclIntroduction, AFailedInitIsNamedAtOnceAtBothEnds) {
  NcclPipeline pipeline(2);
  pipeline.hosts[0]->api->faults().init_fails = true;

  const auto joined = pipeline.join();

  ASSERT_FALSE(joined[0]);
  EXPECT_THAT(joined[0].error().message,
              AllOf(HasSubstr("stage 1 at"), HasSubstr("link 0-1"), HasSubstr("system error")));
  ASSERT_FALSE(joined[1]);
  EXPECT_THAT(joined[1].error().message, HasSubstr("stage 0 at"));
  expect_closed(pipeline);
}

TEST(NcclIntroduction, AFirstMessageThatHangsEndsAtTheDeadline) {
  NcclPipeline pipeline(2);
  pipeline.hosts[0]->api->faults().silent = true;

  const auto joined = pipeline.join(1, kShort);

  EXPECT_THAT(both(joined),
              AllOf(HasSubstr("link 0-1"), HasSubstr("the first message did not come in time")));
  expect_closed(pipeline);
}

TEST(NcclIntroduction, AMissingUniqueIdIsAnErrorOfItsLink) {
  NcclPipeline pipeline(2);
  pipeline.hosts[0]->api->faults().no_id = true;

  const auto joined = pipeline.join(1, 5s);

  ASSERT_FALSE(joined[0]);
  EXPECT_THAT(joined[0].error().message,
              AllOf(HasSubstr("link 0-1 forward"), HasSubstr("no network")));
  EXPECT_FALSE(joined[1]);
}

TEST(NcclIntroduction, APeerThatSpeaksTcpOnlyIsNamedAtTheDeadline) {
  NcclPipeline pipeline(2);
  const std::vector<int> ports{pipeline.hosts[0]->tcp->data_port(),
                               pipeline.hosts[1]->tcp->data_port()};
  auto plain = connect_async(*pipeline.hosts[1]->tcp, generation(1, ports));

  const Connected joined = pipeline.hosts[0]->connect(generation(0, ports), kShort);

  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, AllOf(HasSubstr("stage 1 at"), HasSubstr("hello")));
  EXPECT_TRUE(plain.get());
}

TEST(NcclIntroduction, StopEndsIt) {
  NcclPipeline pipeline(2);
  const std::vector<int> ports{pipeline.hosts[0]->tcp->data_port(),
                               pipeline.hosts[1]->tcp->data_port()};
  auto plain = connect_async(*pipeline.hosts[1]->tcp, generation(1, ports));
  Connected side = pipeline.hosts[0]->tcp->connect(generation(0, ports), soon(), {});
  ASSERT_TRUE(side);
  std::stop_source stop;
  stop.request_stop();

  const Connected joined = pipeline.hosts[0]->links->connect(generation(0, ports), *std::move(side),
                                                             soon(), stop.get_token());

  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Code::kCancelled);
  EXPECT_TRUE(plain.get());
}

TEST(NcclTransport, IsNotMadeWhereNcclCannotRun) {
  const auto device = device::make_host_device();
  auto api = std::make_shared<FakeNccl>(std::make_shared<FakeWorld>(), "GPU-0");
  nccl::Facts facts = api->facts();
  facts.nccl = 22100;
  api->set_facts(facts);

  const auto made = NcclTransport::make(api, *device);

  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("NCCL 2.21.0"));
}

TEST(NcclTransport, NeedsACudaDevice) {
  const auto device = device::make_host_device();

  const auto opened = open_nccl(*device);

  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  EXPECT_THAT(opened.error().message, HasSubstr("NCCL needs"));
}

}  // namespace introduction_test
}  // namespace weir::transport::test
