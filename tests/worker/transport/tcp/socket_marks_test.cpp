// SPDX-License-Identifier: Apache-2.0
// Congestion control and marks of data sockets, read back from the sockets of a transport.
#include <array>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/rig.h"
#include "worker/wire/socket_options.h"

namespace weir::transport {
namespace socket_marks_test {

using namespace test;  // NOLINT: tests
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// DSCP of AF21 and of lower effort (RFC 8622).
constexpr int kBoundary = 18, kBulk = 1;

struct Seen {
  std::string congestion_control;
  int dscp = 0;
  bool operator==(const Seen&) const = default;
};
void PrintTo(const Seen& seen, std::ostream* out) {
  *out << seen.congestion_control << " dscp " << seen.dscp;
}

// The connected sockets of this process.
std::vector<Seen> sockets() {
  constexpr int kMostDescriptors = 1024;
  std::vector<Seen> all;
  for (int descriptor = 0; descriptor < kMostDescriptors; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    std::array<char, 16> name{};
    size = name.size();
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) continue;
    int tos = 0;
    size = sizeof tos;
    EXPECT_EQ(::getsockopt(descriptor, IPPROTO_IP, IP_TOS, &tos, &size), 0);
    all.push_back({name.data(), tos >> 2});
  }
  return all;
}

TEST(SocketMarks, OfLinksAreThoseOfBoundariesAtBothEnds) {
  ASSERT_THAT(sockets(), SizeIs(0));
  const TcpOptions marked{
      .congestion_control = "reno", .boundary_dscp = kBoundary, .bulk_dscp = kBulk};
  const Pipeline pipeline(2, {marked, marked});
  EXPECT_THAT(sockets(), SizeIs(4)) << "two ends, two directions";
  EXPECT_THAT(sockets(), Each(Seen{"reno", kBoundary}));
}

TEST(SocketMarks, OfSumsAreThoseOfBulk) {
  const TcpOptions marked{
      .congestion_control = "reno", .boundary_dscp = kBoundary, .bulk_dscp = kBulk};
  std::vector<std::unique_ptr<TcpTransport>> transports;
  for (int r = 0; r < 2; ++r) transports.push_back(make_transport(marked));
  std::vector<std::future<Result<std::unique_ptr<Collective>>>> connecting;
  for (int r = 0; r < 2; ++r) {
    connecting.push_back(std::async(std::launch::async, [&, r] {
      ReplicaGroupGeneration group{
          .job_uid = "job-1", .job_key = "key", .revision = 1, .replica = r};
      group.others = {{.replica = 1 - r,
                       .ip = "127.0.0.1",
                       .data_port = transports[static_cast<std::size_t>(1 - r)]->data_port()}};
      return transports[static_cast<std::size_t>(r)]->connect_replica_group(group, soon(), {});
    }));
  }
  std::vector<Result<std::unique_ptr<Collective>>> members;
  for (auto& one : connecting) members.push_back(one.get());
  for (const auto& member : members) ASSERT_TRUE(member) << member.error().message;
  EXPECT_THAT(sockets(), SizeIs(2));
  EXPECT_THAT(sockets(), Each(Seen{"reno", kBulk}));
}

TEST(SocketMarks, AreNoneUnlessAsked) {
  const Pipeline pipeline(2);
  for (const Seen& seen : sockets()) EXPECT_EQ(seen.dscp, 0);
}

TEST(SocketMarks, AnUnknownCongestionControlIsToldAndChangesNothing) {
  EXPECT_TRUE(wire::try_congestion_control("reno")->allowed);
  const auto unknown = wire::try_congestion_control("nonesuch");
  ASSERT_TRUE(unknown);
  EXPECT_FALSE(unknown->allowed);
  EXPECT_THAT(unknown->names, HasSubstr("reno"));
  EXPECT_FALSE(unknown->in_use.empty());

  std::vector<Seen> usual;
  {
    const Pipeline pipeline(2);
    usual = sockets();
  }
  const TcpOptions marked{.congestion_control = "nonesuch"};
  const Pipeline pipeline(2, {marked, marked});
  EXPECT_EQ(sockets(), usual);
}

}  // namespace socket_marks_test
}  // namespace weir::transport
