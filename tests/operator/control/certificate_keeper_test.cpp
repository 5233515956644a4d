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
namespace certificate_keeper_test {

using std::chrono::hours;
using ::testing::HasSubstr;

constexpr hours kDay{24};

struct World {
  CertificateKeeper keeper(const std::string& name = "127.0.0.1") {
    return CertificateKeeper({*client, clock, {"sys"}, {name}, "", ""});
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
  ASSERT_TRUE(keeper.leaf().ok());
  world.clock.advance(30 * kDay);

  const auto changes = keeper.refresh(true);

  EXPECT_TRUE(changes.errors.empty());
  EXPECT_FALSE(changes.leaf.has_value());
  EXPECT_FALSE(changes.bundle);
  EXPECT_EQ(world.server.count("PUT"), 0);
}

TEST(CertificateKeeper, IssuesTheLeafAnewBeforeItEnds) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  const auto first = keeper.leaf();
  world.clock.advance(kLeafLife - kLeafRenew + hours(1));

  const auto changes = keeper.refresh(false);

  ASSERT_TRUE(changes.leaf.has_value());
  EXPECT_NE(changes.leaf->certificate_pem, first->certificate_pem);
  EXPECT_GT(validity(changes.leaf->certificate_pem)->until - world.clock.system_now(), kLeafRenew);
  EXPECT_FALSE(keeper.refresh(false).leaf.has_value()) << "once is enough";
}

TEST(CertificateKeeper, IssuesTheLeafEvenWhenTheSecretCannotBeRead) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  ASSERT_TRUE(keeper.leaf().ok());
  world.clock.advance(kLeafLife);
  world.server.fail({.match = "GET", .count = 9, .error = Error{Code::kUnavailable, "gone"}});

  const auto changes = keeper.refresh(true);

  EXPECT_TRUE(changes.leaf.has_value());
  EXPECT_EQ(changes.errors.size(), 1U);
}

TEST(CertificateKeeper, ARemovedSecretComesBackWithTheKeysInUse) {
  World world;
  CertificateKeeper first = world.keeper();
  ASSERT_TRUE(first.load().ok());
  ASSERT_TRUE(first.leaf().ok());
  ASSERT_TRUE(world.client->remove(kube::secrets(), "sys", KeysSecret{}.name, {}).ok());

  EXPECT_THAT(first.refresh(false).errors, ::testing::IsEmpty());

  CertificateKeeper restarted = world.keeper();
  ASSERT_TRUE(restarted.load().ok());
  EXPECT_EQ(restarted.seed(), first.seed());
  EXPECT_EQ(restarted.bundle(), first.bundle());
}

TEST(CertificateKeeper, AnnouncesTheNextAuthorityADayBeforeItSigns) {
  World world;
  CertificateKeeper leader = world.keeper();
  CertificateKeeper follower = world.keeper();
  ASSERT_TRUE(leader.load().ok() && follower.load().ok());
  ASSERT_TRUE(leader.leaf().ok() && follower.leaf().ok());
  const std::string old = leader.bundle();
  world.clock.advance(kAuthorityLife - kAuthorityRenew + kDay);

  EXPECT_FALSE(follower.refresh(false).bundle) << "only the leader writes the Secret";
  EXPECT_TRUE(leader.refresh(true).bundle);
  EXPECT_TRUE(follower.refresh(false).bundle);
  EXPECT_EQ(certificates_in(leader.bundle()), 2);
  EXPECT_TRUE(leader.bundle().starts_with(old));
  EXPECT_EQ(follower.bundle(), leader.bundle());

  world.clock.advance(kAnnounced - hours(1));
  EXPECT_FALSE(leader.refresh(true).bundle);
  world.clock.advance(hours(2));
  const auto changed = leader.refresh(true);
  EXPECT_TRUE(changed.leaf.has_value());
  EXPECT_EQ(certificates_in(leader.bundle()), 2);
  EXPECT_FALSE(leader.bundle().starts_with(old));
  EXPECT_THAT(leader.bundle(), HasSubstr(old)) << "workers that still talk to a follower";
  EXPECT_TRUE(follower.refresh(false).leaf.has_value());

  world.clock.advance(kAuthorityRenew);
  EXPECT_TRUE(leader.refresh(true).bundle);
  EXPECT_EQ(certificates_in(leader.bundle()), 1) << "the retired one has ended";
  EXPECT_EQ(leader.seed(), follower.seed()) << "job keys stay";
}

TEST(CertificateKeeper, LosesARaceOfTwoLeadersQuietly) {
  World world;
  CertificateKeeper keeper = world.keeper();
  ASSERT_TRUE(keeper.load().ok());
  ASSERT_TRUE(keeper.leaf().ok());
  world.clock.advance(kAuthorityLife - kAuthorityRenew + kDay);
  world.server.fail(
      {.match = "PUT",
       .count = 1,
       .response = http::Response{409, {}, R"({"kind": "Status", "reason": "Conflict"})"}});

  EXPECT_FALSE(keeper.refresh(true).bundle);
  EXPECT_EQ(certificates_in(keeper.bundle()), 1);

  EXPECT_TRUE(keeper.refresh(true).bundle);
  EXPECT_EQ(certificates_in(keeper.bundle()), 2);
}

// Real handshakes, which read the machine's clock.
struct TlsServer {
  explicit TlsServer(const http::TlsIdentity& leaf)
      : http(*http::make_server({.address = "127.0.0.1", .tls = leaf},
                                [](const http::IncomingRequest&, const http::Responder& respond) {
                                  respond({200, {}, ""});
                                })) {}
  // name: that a worker asks for, "" = the address
  bool trusted_by(const std::string& bundle, const std::string& name) const {
    const auto transport =
        http::make_beast_transport({.base_url = "https://127.0.0.1:" + std::to_string(http->port()),
                                    .ca_file = folder.file("ca.crt", bundle),
                                    .tls_name = name});
    return (*transport)
        ->send({http::Method::kGet, "/", {}, ""}, SystemClock().now() + std::chrono::seconds(10),
               {})
        .ok();
  }

  const test::TempDir folder;
  std::unique_ptr<http::Server> http;
};

// A worker with the bundle of <job>-control reaches the server at every step of a change.
TEST(CertificateKeeper, NeverLosesAWorkerDuringAChangeOfAuthority) {
  const SystemTime now = SystemClock().system_now();
  World world;
  Keys keys{make_authority(now - kAuthorityLife + kAuthorityRenew / 2), "seed", {}, ""};
  const TlsServer server(*issue_leaf(keys.authority, {"127.0.0.1"}, now));
  const auto reaches = [&](const std::string& bundle) { return server.trusted_by(bundle, ""); };

  const std::string first = bundle_of(keys);
  EXPECT_TRUE(reaches(first));
  keys = *rotated(keys, "", now - kDay - hours(1));
  const std::string announced = bundle_of(keys);
  EXPECT_TRUE(reaches(announced));
  keys = *rotated(keys, "", now);
  server.http->set_tls(*issue_leaf(keys.authority, {"127.0.0.1"}, now));
  EXPECT_TRUE(reaches(announced)) << "its ConfigMap has not been brought up to date yet";
  EXPECT_TRUE(reaches(bundle_of(keys)));
  EXPECT_FALSE(reaches(first));
  EXPECT_FALSE(rotated(keys, "", now).has_value());
}

// Files of a user's certificate authority in a folder, and replicas with and without them.
struct OwnWorld : World {
  OwnWorld() { write(user_authority, clock.system_now()); }
  void write(const Authority& authority, SystemTime now) {
    const auto leaf = issue_leaf(authority, {"op.sys.svc"}, now);
    folder.file("tls.crt", leaf->certificate_pem);
    folder.file("tls.key", leaf->key_pem);
    folder.file("ca.crt", authority.certificate_pem);
    newest = leaf->certificate_pem;
  }
  CertificateKeeper with_files() {
    return CertificateKeeper(
        {*client, clock, {"sys"}, {"op.sys.svc"}, "op.sys.svc", folder.path().string()});
  }
  CertificateKeeper without_files() {
    return CertificateKeeper({*client, clock, {"sys"}, {"op.sys.svc"}, "op.sys.svc", ""});
  }

  const Authority user_authority = make_authority(clock.system_now());
  const test::TempDir folder;
  std::string newest;  // leaf in the files
};

bool trusts(const std::string& bundle, const std::string& pem) {
  return bundle.find(pem) != bundle.npos;
}

TEST(OwnCertificates, OfANewInstallationAreServedAtOnceAndTrusted) {
  OwnWorld world;
  CertificateKeeper keeper = world.with_files();

  ASSERT_TRUE(keeper.load().ok());

  EXPECT_EQ(keeper.leaf()->certificate_pem, world.newest);
  EXPECT_TRUE(trusts(keeper.bundle(), world.user_authority.certificate_pem));
  EXPECT_EQ(certificates_in(keeper.bundle()), 2) << "and the self-made one";
  EXPECT_FALSE(keeper.refresh(true).leaf.has_value());
  EXPECT_EQ(world.server.count("PUT"), 0);
  EXPECT_EQ(keeper.leaf_ends(), read_own_certificate(world.folder.path().string(), "op.sys.svc",
                                                     world.clock.system_now())
                                    ->until);
}

TEST(OwnCertificates, AreTrustedByWorkersWithTheBundle) {
  OwnWorld world;
  SystemClock clock;
  const SystemTime now = clock.system_now();
  const auto keeper_with = [&](const std::string& folder) {
    return CertificateKeeper({*world.client, clock, {"sys"}, {"op.sys.svc"}, "op.sys.svc", folder});
  };
  world.write(make_authority(now), now);
  CertificateKeeper keeper = keeper_with(world.folder.path().string());
  ASSERT_TRUE(keeper.load().ok());
  const std::string bundle = keeper.bundle();
  const TlsServer server(*keeper.leaf());
  EXPECT_TRUE(server.trusted_by(bundle, "op.sys.svc"));
  EXPECT_FALSE(server.trusted_by(bundle, "op.other.svc"));
  EXPECT_FALSE(server.trusted_by(make_authority(now).certificate_pem, "op.sys.svc"));

  world.write(make_authority(now), now);
  EXPECT_FALSE(keeper.refresh(true).leaf.has_value());
  EXPECT_TRUE(server.trusted_by(keeper.bundle(), "op.sys.svc"));

  for (const std::string& files : {world.folder.path().string(), std::string()}) {
    CertificateKeeper another = keeper_with(files);
    ASSERT_TRUE(another.load().ok());
    server.http->set_tls(*another.leaf());
    EXPECT_TRUE(server.trusted_by(bundle, "op.sys.svc")) << "a replica that started now";
  }
}

TEST(OwnCertificates, AreServedOnceRenewedFilesAreThere) {
  OwnWorld world;
  CertificateKeeper keeper = world.with_files();
  ASSERT_TRUE(keeper.load().ok() && keeper.leaf().ok());
  const std::string first = world.newest;
  world.clock.advance(30 * kDay);
  world.write(world.user_authority, world.clock.system_now());
  ASSERT_NE(world.newest, first);

  const auto changes = keeper.refresh(false);

  ASSERT_TRUE(changes.leaf.has_value());
  EXPECT_TRUE(changes.own);
  EXPECT_EQ(changes.leaf->certificate_pem, world.newest);
  EXPECT_FALSE(changes.bundle) << "the authority is the same";
  EXPECT_FALSE(keeper.refresh(false).leaf.has_value()) << "once is enough";
}

TEST(OwnCertificates, OfAnotherAuthorityAreServedOnceWorkersKnowIt) {
  OwnWorld world;
  CertificateKeeper leader = world.with_files(), follower = world.with_files();
  ASSERT_TRUE(leader.load().ok() && follower.load().ok() && leader.leaf().ok() &&
              follower.leaf().ok());
  const std::string seed = leader.seed(), workers_have = leader.bundle();
  const Authority other = make_authority(world.clock.system_now());
  world.write(other, world.clock.system_now());
  CertificateKeeper restarted = world.with_files();
  ASSERT_TRUE(restarted.load().ok());

  EXPECT_FALSE(follower.refresh(false).bundle) << "only the leader writes the Secret";
  const auto announced = leader.refresh(true);
  EXPECT_TRUE(announced.bundle);
  EXPECT_FALSE(announced.leaf.has_value()) << "workers still have the bundle from before";
  EXPECT_NE(restarted.leaf()->certificate_pem, world.newest);
  EXPECT_TRUE(follower.refresh(false).bundle);
  for (const auto& pem : {world.user_authority.certificate_pem, other.certificate_pem}) {
    EXPECT_TRUE(trusts(leader.bundle(), pem));
    EXPECT_TRUE(trusts(follower.bundle(), pem));
  }

  world.clock.advance(kOwnAnnounced);
  EXPECT_EQ(leader.refresh(true).leaf->certificate_pem, world.newest);
  EXPECT_EQ(follower.refresh(false).leaf->certificate_pem, world.newest);

  world.clock.advance(kAnnounced);
  EXPECT_TRUE(leader.refresh(true).bundle);
  EXPECT_FALSE(trusts(leader.bundle(), world.user_authority.certificate_pem));
  EXPECT_TRUE(trusts(leader.bundle(), other.certificate_pem));
  EXPECT_EQ(leader.seed(), seed) << "job keys stay";
}

// A rolling upgrade from self-made certificates to own ones and back, with replicas of both kinds.
TEST(OwnCertificates, NeverLoseAWorkerWhenTheyComeOrGo) {
  OwnWorld world;
  CertificateKeeper before = world.without_files();
  ASSERT_TRUE(before.load().ok() && before.leaf().ok());
  const std::string self_made = before.bundle();

  CertificateKeeper with = world.with_files();
  ASSERT_TRUE(with.load().ok());
  EXPECT_NE(with.leaf()->certificate_pem, world.newest) << "workers have the bundle of `before`";
  EXPECT_FALSE(before.refresh(true).bundle);
  EXPECT_FALSE(with.refresh(false).leaf.has_value());

  EXPECT_TRUE(with.refresh(true).bundle) << "it leads now";
  EXPECT_TRUE(before.refresh(false).bundle);
  for (const auto* keeper : {&before, &with}) {
    EXPECT_TRUE(trusts(keeper->bundle(), self_made));
    EXPECT_TRUE(trusts(keeper->bundle(), world.user_authority.certificate_pem));
  }
  world.clock.advance(kOwnAnnounced - std::chrono::seconds(1));
  EXPECT_FALSE(with.refresh(true).leaf.has_value());
  world.clock.advance(std::chrono::seconds(2));
  EXPECT_EQ(with.refresh(true).leaf->certificate_pem, world.newest);

  CertificateKeeper after = world.without_files();
  ASSERT_TRUE(after.load().ok() && after.leaf().ok());
  EXPECT_TRUE(trusts(after.bundle(), world.user_authority.certificate_pem));
  EXPECT_FALSE(after.refresh(true).bundle) << "`with` still serves its own";
  EXPECT_TRUE(trusts(after.bundle(), world.user_authority.certificate_pem));
  EXPECT_FALSE(with.refresh(false).leaf.has_value());
  world.clock.advance(kAnnounced - hours(1));
  EXPECT_FALSE(with.refresh(false).own) << "workers are going to forget its authority";
  world.clock.advance(hours(1));
  EXPECT_TRUE(after.refresh(true).bundle);
  EXPECT_EQ(after.bundle(), self_made);
}

TEST(OwnCertificates, AreKeptWhenNewFilesAreWrong) {
  OwnWorld world;
  CertificateKeeper keeper = world.with_files();
  ASSERT_TRUE(keeper.load().ok() && keeper.leaf().ok());
  const std::string bundle = keeper.bundle();
  world.folder.file("tls.crt", "nothing");

  const auto changes = keeper.refresh(true);

  ASSERT_EQ(changes.errors.size(), 1U);
  EXPECT_THAT(changes.errors[0].message, HasSubstr("/tls.crt: holds no certificate in PEM"));
  EXPECT_FALSE(changes.leaf.has_value());
  EXPECT_EQ(keeper.bundle(), bundle);

  world.write(world.user_authority, world.clock.system_now());
  const auto mended = keeper.refresh(true);
  EXPECT_TRUE(mended.errors.empty());
  EXPECT_EQ(mended.leaf->certificate_pem, world.newest);
}

TEST(OwnCertificates, ThatHaveEndedGiveWayToTheSelfMadeOne) {
  OwnWorld world;
  CertificateKeeper keeper = world.with_files();
  ASSERT_TRUE(keeper.load().ok() && keeper.leaf().ok());
  world.clock.advance(kLeafLife + hours(1));

  const auto changes = keeper.refresh(true);

  ASSERT_EQ(changes.errors.size(), 1U);
  EXPECT_THAT(changes.errors[0].message, HasSubstr("/tls.crt: expired at "));
  ASSERT_TRUE(changes.leaf.has_value());
  EXPECT_FALSE(changes.own);
  EXPECT_EQ(certificates_in(keeper.bundle()), 2);
}

TEST(OwnCertificates, ThatAreWrongAtTheStartAreToldAndNothingIsMade) {
  OwnWorld world;
  world.folder.file("tls.key", "nothing");
  CertificateKeeper keeper = world.with_files();

  const Status loaded = keeper.load();

  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kInvalid);
  EXPECT_THAT(loaded.error().message, HasSubstr("/tls.key: holds no private key"));
  EXPECT_TRUE(world.server.requests().empty());
}

}  // namespace certificate_keeper_test
}  // namespace weir::control_server
