// SPDX-License-Identifier: Apache-2.0
#include "operator/control/certificate_keeper.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"
#include "tests/support/temp_dir.h"
#include "worker/base/clock.h"
#include "worker/http/beast_transport.h"
#include "worker/http/server.h"

namespace weir::control_server {
namespace {

using std::chrono::hours;
using ::testing::HasSubstr;

constexpr hours kDay{24};

struct World {
  CertificateKeeper keeper(const std::string& name = "127.0.0.1") {
    return CertificateKeeper({*client, clock, {"sys"}, {name}});
  }

  test::JumpClock clock;
  test::FakeTransport server;
  kube::TokenSource token{"", "", clock};
  std::unique_ptr<kube::Client> client = kube::make_client(server, token, clock, {});
};

int certificates_in(const std::string& bundle) {
  int count = 0;
  for (auto at = bundle.find("BEGIN CERT"); at != bundle.npos;
       at = bundle.find("BEGIN CERT", at + 1)) {
    ++count;
  }
  return count;
}

TEST(CertificateKeeper, LeavesFreshCertificatesAlone) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  ASSERT_TRUE(keeper.issue().ok());
  world.clock.advance(30 * kDay);

  const auto changes = keeper.refresh(true);

  ASSERT_TRUE(changes.ok());
  EXPECT_FALSE(changes->leaf.has_value());
  EXPECT_FALSE(changes->bundle);
  EXPECT_EQ(world.server.count("PUT"), 0);
}

TEST(CertificateKeeper, IssuesTheLeafAnewBeforeItEnds) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  const auto first = keeper.issue();
  world.clock.advance(kLeafLife - kLeafRenew + hours(1));

  const auto changes = keeper.refresh(false);

  ASSERT_TRUE(changes.ok() && changes->leaf.has_value());
  EXPECT_NE(changes->leaf->certificate_pem, first->certificate_pem);
  EXPECT_GT(validity(changes->leaf->certificate_pem)->until - world.clock.system_now(), kLeafRenew);
  EXPECT_FALSE(keeper.refresh(false)->leaf.has_value()) << "once is enough";
}

TEST(CertificateKeeper, IssuesTheLeafEvenWhenTheSecretCannotBeRead) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  ASSERT_TRUE(keeper.issue().ok());
  world.clock.advance(kLeafLife);
  world.server.fail({.match = "GET", .count = 9, .error = Error{Code::kUnavailable, "gone"}});

  const auto changes = keeper.refresh(true);

  ASSERT_TRUE(changes.ok());
  EXPECT_TRUE(changes->leaf.has_value());
  EXPECT_FALSE(keeper.refresh(true).ok());
}

TEST(CertificateKeeper, AnnouncesTheNextAuthorityADayBeforeItSigns) {
  World world;
  CertificateKeeper leader = world.keeper();
  CertificateKeeper follower = world.keeper();
  ASSERT_TRUE(leader.load().ok() && follower.load().ok());
  ASSERT_TRUE(leader.issue().ok() && follower.issue().ok());
  const std::string old = leader.bundle();
  world.clock.advance(kAuthorityLife - kAuthorityRenew + kDay);

  EXPECT_FALSE(follower.refresh(false)->bundle) << "only the leader writes the Secret";
  EXPECT_TRUE(leader.refresh(true)->bundle);
  EXPECT_TRUE(follower.refresh(false)->bundle);
  EXPECT_EQ(certificates_in(leader.bundle()), 2);
  EXPECT_TRUE(leader.bundle().starts_with(old));
  EXPECT_EQ(follower.bundle(), leader.bundle());

  world.clock.advance(kAnnounced - hours(1));
  EXPECT_FALSE(leader.refresh(true)->bundle);
  world.clock.advance(hours(2));
  const auto changed = leader.refresh(true);
  EXPECT_TRUE(changed->leaf.has_value());
  EXPECT_EQ(certificates_in(leader.bundle()), 2);
  EXPECT_FALSE(leader.bundle().starts_with(old));
  EXPECT_THAT(leader.bundle(), HasSubstr(old)) << "workers that still talk to a follower";
  EXPECT_TRUE(follower.refresh(false)->leaf.has_value());

  world.clock.advance(kAuthorityRenew);
  EXPECT_TRUE(leader.refresh(true)->bundle);
  EXPECT_EQ(certificates_in(leader.bundle()), 1) << "the retired one has ended";
  EXPECT_EQ(leader.seed(), follower.seed()) << "job keys stay";
}

TEST(CertificateKeeper, LosesARaceOfTwoLeadersQuietly) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  ASSERT_TRUE(keeper.issue().ok());
  world.clock.advance(kAuthorityLife - kAuthorityRenew + kDay);
  world.server.fail(
      {.match = "PUT",
       .count = 1,
       .response = http::Response{409, {}, R"({"kind": "Status", "reason": "Conflict"})"}});

  EXPECT_FALSE(keeper.refresh(true)->bundle);
  EXPECT_EQ(certificates_in(keeper.bundle()), 1);

  EXPECT_TRUE(keeper.refresh(true)->bundle);
  EXPECT_EQ(certificates_in(keeper.bundle()), 2);
}

// A worker with the bundle of <job>-control reaches the server at every step of a change.
TEST(CertificateKeeper, NeverLosesAWorkerDuringAChangeOfAuthority) {
  // The handshake reads the machine's clock: certificates are made at times around it.
  const SystemTime now = SystemClock().system_now();
  World world;
  Keys keys{make_authority(now - kAuthorityLife + kAuthorityRenew / 2), "seed", {}, ""};
  const test::TempDir folder;
  const auto server = http::make_server(
      {.address = "127.0.0.1", .tls = *issue_leaf(keys.authority, {"127.0.0.1"}, now)},
      [](const http::IncomingRequest&, const http::Responder& respond) { respond({200, {}, ""}); });
  ASSERT_TRUE(server.ok());
  const std::string url = "https://127.0.0.1:" + std::to_string((*server)->port());
  const auto reaches = [&](const std::string& bundle) {
    const auto transport =
        http::make_beast_transport({.base_url = url, .ca_file = folder.file("ca.crt", bundle)});
    return (*transport)
        ->send({http::Method::kGet, "/", {}, ""}, SystemClock().now() + std::chrono::seconds(10),
               {})
        .ok();
  };

  const std::string first = bundle_of(keys);
  EXPECT_TRUE(reaches(first));
  keys = *rotated(keys, now - kDay - hours(1));
  const std::string announced = bundle_of(keys);
  EXPECT_TRUE(reaches(announced));
  keys = *rotated(keys, now);
  (*server)->set_tls(*issue_leaf(keys.authority, {"127.0.0.1"}, now));
  EXPECT_TRUE(reaches(announced)) << "its ConfigMap has not been brought up to date yet";
  EXPECT_TRUE(reaches(bundle_of(keys)));
  EXPECT_FALSE(reaches(first));
  EXPECT_FALSE(rotated(keys, now).has_value());
}

}  // namespace
}  // namespace weir::control_server
