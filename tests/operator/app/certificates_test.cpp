// SPDX-License-Identifier: Apache-2.0
// Own certificates of the control API in `weir-operator run`: its step, and what the waiting main
// thread does each minute.
#include "operator/control/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/app/run_state.h"
#include "tests/support/fake_transport.h"
#include "tests/support/temp_dir.h"
#include "worker/http/beast_transport.h"

namespace weir::operator_app {
namespace certificates_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FakeControl final : public control_server::ControlApi {
 public:
  int port() const override { return 0; }
  void set_tls(const http::TlsIdentity& tls) override { given.push_back(tls.certificate_pem); }
  void stop() override {}

  std::vector<std::string> given;
};

class OwnCertificates : public testing::Test {
 protected:
  OwnCertificates() {
    write(control_server::make_authority(now_));
    Options options;
    options.control_tls_dir = folder_.path().string();
    options.control_service = "op";
    state_ = std::make_unique<RunState>(options);
    state_->namespace_name = "sys";
    state_->client = kube::make_client(server_, token_, state_->clock, {});
    state_->metrics = *telemetry::make_endpoint(0, "127.0.0.1");
    state_->elector = std::make_unique<kube::Elector>(
        *state_->client, state_->clock,
        kube::LeaseOptions{.namespace_name = "sys", .name = "op", .identity = "op-0"}, 1);
    auto control = std::make_unique<FakeControl>();
    control_ = control.get();
    state_->control = std::move(control);
  }
  void write(const control_server::Authority& authority) {
    const auto leaf = control_server::issue_leaf(authority, {"op.sys.svc"}, now_);
    folder_.file("tls.crt", leaf->certificate_pem);
    folder_.file("tls.key", leaf->key_pem);
    folder_.file("ca.crt", authority.certificate_pem);
    newest_ = leaf->certificate_pem;
    authority_ = authority;
  }
  Status load() {
    for (const RunStep& step : serving_steps()) {
      if (step.name == "operator keys") return step.start(*state_);
    }
    return Error{Code::kInternal, "there is no such step"};
  }
  std::string metrics() const {
    const auto transport = http::make_beast_transport(
        {.base_url = "http://127.0.0.1:" + std::to_string(state_->metrics->port())});
    return (*transport)
        ->send({http::Method::kGet, "/metrics", {}, ""},
               SystemClock().now() + std::chrono::seconds(30), {})
        ->body;
  }

  const SystemTime now_ = SystemClock().system_now();
  const test::TempDir folder_;
  SystemClock clock_;
  test::FakeTransport server_;
  kube::TokenSource token_{"", "", clock_};
  control_server::Authority authority_;
  std::string newest_;  // leaf in the files
  std::unique_ptr<RunState> state_;
  FakeControl* control_ = nullptr;
};

TEST_F(OwnCertificates, AreTakenFromTheFolderForTheNameOfTheService) {
  ASSERT_TRUE(load().ok());

  EXPECT_EQ(state_->certificates->leaf()->certificate_pem, newest_);
  EXPECT_THAT(metrics(), HasSubstr("\nweir_control_certificate_expiration_timestamp_seconds 1"));
}

TEST_F(OwnCertificates, ThatAreWrongAreAConfigurationError) {
  folder_.file("tls.key", "nothing");

  const Status loaded = load();

  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kInvalid) << "`run` ends with code 2";
  EXPECT_THAT(loaded.error().message, AllOf(HasSubstr(folder_.path().string() + "/tls.key: ")));
}

TEST_F(OwnCertificates, AreReadAgainAndServed) {
  ASSERT_TRUE(load().ok() && state_->certificates->leaf().ok());
  renew_certificates(*state_);
  EXPECT_TRUE(control_->given.empty());

  write(authority_);
  renew_certificates(*state_);
  EXPECT_EQ(control_->given, std::vector{newest_});

  folder_.file("tls.crt", "nothing");
  renew_certificates(*state_);
  EXPECT_EQ(control_->given.size(), 1U) << "the last good one stays";
  EXPECT_THAT(metrics(), HasSubstr("weir_control_certificate_errors_total 1"));
}

}  // namespace certificates_test
}  // namespace weir::operator_app
