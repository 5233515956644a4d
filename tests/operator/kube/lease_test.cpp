// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/lease.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"

namespace weir::kube {
namespace lease_test {

using std::chrono::seconds;

constexpr auto kPath = "/apis/coordination.k8s.io/v1/namespaces/weir/leases/weir-operator";

struct World {
  test::JumpClock clock;
  test::FakeTransport server;
  TokenSource token{"", "", clock};
  std::unique_ptr<Client> client = make_client(server, token, clock, {});
  Elector elector(const std::string& identity) {
    return {*client, clock, {.namespace_name = "weir", .identity = identity}, 1};
  }
  nlohmann::json spec() { return nlohmann::json::parse(server.get(kPath))["spec"]; }
};

TEST(Elector, MakesTheLeaseAndRenewsItByPutAlone) {
  World world;
  Elector a = world.elector("a");

  EXPECT_TRUE(a.try_once());
  EXPECT_TRUE(a.leading());
  EXPECT_EQ(world.spec()["holderIdentity"], "a");

  EXPECT_TRUE(a.try_once());
  EXPECT_EQ(world.server.requests().back().substr(0, 3), "PUT");
  EXPECT_EQ(world.server.count("GET"), 1);
  EXPECT_EQ(world.spec()["leaseTransitions"], 0);
}

TEST(Elector, FollowsUntilTheRecordHasNotChangedForItsDuration) {
  World world;
  Elector a = world.elector("a");
  Elector b = world.elector("b");
  ASSERT_TRUE(a.try_once());

  EXPECT_FALSE(b.try_once());
  EXPECT_EQ(b.holder(), "a");
  world.clock.advance(seconds(14));
  ASSERT_TRUE(a.try_once());  // renewed: b starts to count anew
  EXPECT_FALSE(b.try_once());
  world.clock.advance(seconds(14));
  EXPECT_FALSE(b.try_once());
  world.clock.advance(seconds(2));
  EXPECT_TRUE(b.try_once());

  EXPECT_EQ(world.spec()["leaseTransitions"], 1);
  EXPECT_FALSE(a.try_once()) << "409, then it sees b";
  EXPECT_EQ(a.holder(), "b");
}

// Worst case of a killed leader: it renewed just after the follower's look, which sees that one
// retry later and then waits for the whole duration: 2 x 1.2 + 15 s, below the promised 20 s.
TEST(Elector, TakesOverAtTheMomentTheLeaseRunsOut) {
  World world;
  Elector a = world.elector("a");
  Elector b = world.elector("b");
  ASSERT_TRUE(a.try_once());
  ASSERT_FALSE(b.try_once());
  ASSERT_TRUE(a.try_once());
  const SteadyTime killed = world.clock.now();

  do {
    world.clock.sleep_until(b.next_try(), {});
  } while (!b.try_once());

  EXPECT_LE(world.clock.now() - killed, std::chrono::milliseconds(17'400));
  EXPECT_GE(world.clock.now() - killed, seconds(15));
}

TEST(Elector, TakesAReleasedLeaseWithTheNextLook) {
  World world;
  Elector a = world.elector("a");
  Elector b = world.elector("b");
  ASSERT_TRUE(a.try_once());
  ASSERT_FALSE(b.try_once());

  a.release();
  const SteadyTime released = world.clock.now();
  world.clock.sleep_until(b.next_try(), {});

  EXPECT_TRUE(b.try_once());
  EXPECT_LE(world.clock.now() - released, seconds(3));
}

TEST(Elector, MayNotWriteOnceTheRenewalIsTooOld) {
  World world;
  Elector a = world.elector("a");
  ASSERT_TRUE(a.try_once());
  world.server.fail({.match = "PUT", .count = 100, .error = Error{Code::kTimeout, "slow"}});
  world.server.fail({.match = "GET", .count = 100, .error = Error{Code::kTimeout, "slow"}});

  world.clock.advance(seconds(9));
  EXPECT_FALSE(a.try_once());
  EXPECT_TRUE(a.may_write());
  world.clock.advance(seconds(1));
  EXPECT_FALSE(a.may_write());
}

TEST(Elector, TellsOfALostLeaseAfterTheDeadline) {
  World world;
  Elector a = world.elector("a");
  int leading = 0, lost = 0;

  a.run(
      {},
      [&] {
        ++leading;
        world.server.fail({.match = "", .count = 1000, .error = Error{Code::kUnavailable, "gone"}});
      },
      [&] { ++lost; });

  EXPECT_EQ(leading, 1);
  EXPECT_EQ(lost, 1);
  EXPECT_FALSE(a.leading());
}

TEST(Elector, GivesTheLeaseBackForAFollowerToTakeAtOnce) {
  World world;
  Elector a = world.elector("a");
  Elector b = world.elector("b");
  ASSERT_TRUE(a.try_once());
  ASSERT_FALSE(b.try_once());

  a.release();

  EXPECT_EQ(world.spec()["holderIdentity"], "");
  EXPECT_TRUE(b.try_once());
}

}  // namespace lease_test
}  // namespace weir::kube
