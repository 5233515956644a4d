// SPDX-License-Identifier: Apache-2.0
// The contract with cpprestsdk, on real sockets: which error means what, and who is trusted.
#include "operator/kube/cpprest_transport.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/certificates.h"
#include "worker/http/server.h"

namespace weir::kube {
namespace cpprest_transport_test {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

http::Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

std::unique_ptr<http::Server> serve(http::Handler handler, const test::Certificate& tls = {}) {
  http::ServerOptions options;
  options.address = "127.0.0.1";
  options.tls = {tls.certificate_pem, tls.key_pem};
  auto server = http::make_server(options, std::move(handler));
  EXPECT_TRUE(server.ok()) << server.error().message;
  return *std::move(server);
}

std::unique_ptr<http::Transport> to(int port, const std::string& scheme = "http",
                                    const TlsExtras& extras = {}) {
  http::Options options;
  options.base_url = scheme + "://127.0.0.1:" + std::to_string(port);
  return make_cpprest_transport(options, extras);
}

TEST(CpprestTransport, CarriesMethodHeadersAndBodyBothWays) {
  const auto server = serve([](const http::IncomingRequest& in, const http::Responder& respond) {
    std::string type;
    for (const auto& [name, value] : in.request.headers) {
      if (name == "Content-Type") type = value;
    }
    respond({201, {{"X-Answer", "yes"}}, in.request.path + "|" + type + "|" + in.request.body});
  });

  const auto answer =
      to(server->port())
          ->send({http::Method::kPatch, "/a?b=c", {{"Content-Type", "application/x"}}, "body"},
                 in(10s), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, "/a?b=c|application/x|body");
  EXPECT_THAT(answer->headers, ::testing::Contains(::testing::Pair("X-Answer", "yes")));
}

TEST(CpprestTransport, GivesErrorStatusesAsAnswers) {
  const auto server = serve([](const http::IncomingRequest&, const http::Responder& respond) {
    respond({410, {}, "gone"});
  });
  const auto transport = to(server->port());
  bool called = false;

  const auto sent = transport->send({http::Method::kGet, "/", {}, ""}, in(10s), {});
  const auto streamed = transport->stream({http::Method::kGet, "/", {}, ""}, {},
                                          [&](std::string_view) { called = true; });

  ASSERT_TRUE(sent.ok() && streamed.ok());
  EXPECT_EQ(sent->status, 410);
  EXPECT_EQ(streamed->status, 410);
  EXPECT_EQ(streamed->body, "gone");
  EXPECT_FALSE(called);
}

TEST(CpprestTransport, StreamsTheBodyOfAGoodAnswer) {
  const std::string body(300'000, 'x');
  const auto server = serve([&](const http::IncomingRequest&, const http::Responder& respond) {
    respond({200, {}, body});
  });
  std::string seen;

  const auto answer = to(server->port())
                          ->stream({http::Method::kGet, "/", {}, ""}, {},
                                   [&](std::string_view bytes) { seen += bytes; });

  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(seen, body);
}

TEST(CpprestTransport, CallsARefusedConnectionUnavailable) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);  // and never listen
  ASSERT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);

  const auto answer =
      to(ntohs(address.sin_port))->send({http::Method::kGet, "/", {}, ""}, in(10s), {});
  close(socket);

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
}

TEST(CpprestTransport, EndsARequestAtItsDeadline) {
  std::vector<http::Responder> kept;  // never answered
  const auto server = serve([&](const http::IncomingRequest&, http::Responder respond) {
    kept.push_back(std::move(respond));
  });

  const auto answer = to(server->port())->send({http::Method::kGet, "/", {}, ""}, in(100ms), {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kTimeout);
}

TEST(CpprestTransport, EndsAStreamOnAStopRequest) {
  std::stop_source stop;
  std::vector<http::Responder> kept;
  const auto server = serve([&](const http::IncomingRequest&, http::Responder respond) {
    kept.push_back(std::move(respond));
    stop.request_stop();
  });

  const auto answer =
      to(server->port())
          ->stream({http::Method::kGet, "/", {}, ""}, stop.get_token(), [](std::string_view) {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kCancelled);
}

TEST(CpprestTransport, DoesNotFollowARedirect) {
  const auto server = serve([](const http::IncomingRequest& in, const http::Responder& respond) {
    if (in.request.path == "/") return respond({307, {{"Location", "/other"}}, ""});
    respond({200, {}, "followed"});
  });

  const auto answer =
      to(server->port())
          ->send({http::Method::kGet, "/", {{"Authorization", "Bearer secret"}}, ""}, in(10s), {});

  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 307);
}

TEST(CpprestTransport, TrustsTheGivenAuthorityOnly) {
  const auto ours = test::make_authority("ours"), other = test::make_authority("other");
  const auto server = serve([](const http::IncomingRequest&,
                               const http::Responder& respond) { respond({200, {}, "ok"}); },
                            test::make_certificate(ours, {"127.0.0.1"}));
  const auto ask = [&](const TlsExtras& extras) {
    return to(server->port(), "https", extras)
        ->send({http::Method::kGet, "/", {}, ""}, in(10s), {});
  };

  EXPECT_TRUE(ask({.ca_pem = ours.certificate_pem}).ok());
  EXPECT_TRUE(ask({.insecure = true}).ok());
  const auto wrong = ask({.ca_pem = other.certificate_pem});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, Code::kUnavailable);
  EXPECT_FALSE(ask({}).ok()) << "no CA: nobody is trusted, no public one either";
}

TEST(CpprestTransport, TrustsEachCertificateOfABundleAlsoBelowTheRoot) {
  const auto root = test::make_authority("root"), middle = test::make_authority("middle", &root);
  auto leaf = test::make_certificate(middle, {"127.0.0.1"});
  leaf.certificate_pem += middle.certificate_pem;
  const auto server = serve([](const http::IncomingRequest&,
                               const http::Responder& respond) { respond({200, {}, "ok"}); },
                            leaf);
  const std::string other = test::make_authority("other").certificate_pem;
  const auto ask = [&](const std::string& ca_pem) {
    return to(server->port(), "https", {.ca_pem = ca_pem})
        ->send({http::Method::kGet, "/", {}, ""}, in(10s), {})
        .ok();
  };

  EXPECT_TRUE(ask(middle.certificate_pem));
  EXPECT_TRUE(ask(other + middle.certificate_pem));
  EXPECT_TRUE(ask(other + root.certificate_pem));
  EXPECT_FALSE(ask(other));
}

TEST(CpprestTransport, ChecksTheHostName) {
  const auto ours = test::make_authority("ours");
  const auto server = serve([](const http::IncomingRequest&,
                               const http::Responder& respond) { respond({200, {}, "ok"}); },
                            test::make_certificate(ours, {"elsewhere.example"}));

  const auto answer = to(server->port(), "https", {.ca_pem = ours.certificate_pem})
                          ->send({http::Method::kGet, "/", {}, ""}, in(10s), {});

  EXPECT_FALSE(answer.ok());
}

}  // namespace cpprest_transport_test
}  // namespace weir::kube
