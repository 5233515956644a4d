// SPDX-License-Identifier: Apache-2.0
// Server and client against each other, over loopback, plain and with TLS.
#include "worker/http/server.h"

#include <arpa/inet.h>
#include <atomic>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"
#include "worker/http/beast_transport.h"

namespace weir::http {
namespace server_test {

using namespace std::chrono_literals;

Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

Deadline soon() {
  return in(30s);
}

void echo(IncomingRequest incoming, const Responder& respond) {
  respond({200, {{"X-Path", incoming.request.path}}, incoming.request.body});
}

std::unique_ptr<Server> serve(ServerOptions options, Handler handler) {
  options.address = options.address.empty() ? "127.0.0.1" : options.address;
  auto server = make_server(options, std::move(handler));
  EXPECT_TRUE(server.ok()) << server.error().message;
  return *std::move(server);
}

std::unique_ptr<Transport> client_of(const Server& server, Options options = {}) {
  const bool plain = options.ca_file.empty() && options.ca_pem.empty() && !options.insecure;
  options.base_url =
      (plain ? "http://127.0.0.1:" : "https://127.0.0.1:") + std::to_string(server.port());
  auto transport = make_beast_transport(options);
  EXPECT_TRUE(transport.ok()) << transport.error().message;
  return *std::move(transport);
}

// A client that sends raw bytes and reads until the server closes.
class RawClient {
 public:
  // `from`: 127.0.0.<from>.
  explicit RawClient(int port, unsigned from = 1) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xFFU) + from);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 30, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void write(const std::string& text) {
    EXPECT_GE(send(socket_, text.data(), text.size(), MSG_NOSIGNAL), 0);
  }
  std::string read_until(const std::string& mark) {
    std::string out;
    char c = 0;
    while (out.find(mark) == out.npos && recv(socket_, &c, 1, 0) == 1) out += c;
    return out;
  }
  std::string read_all() { return read_until("\x01never\x01"); }

 private:
  int socket_;
  bool connected_ = false;
};

TEST(Server, EchoesABodyOfAMegabyte) {
  const auto server = serve({}, echo);
  const auto client = client_of(*server);
  const std::string body(1'000'000, 'x');

  const auto answer = client->send({Method::kPost, "/a?b=1", {}, body}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, body);
  EXPECT_EQ(header_value(answer->headers, "x-path"), "/a?b=1");
}

TEST(Server, HandsOverMethodHeadersAndPeer) {
  std::mutex mutex;
  IncomingRequest seen;
  const auto server = serve({}, [&](IncomingRequest incoming, const Responder& respond) {
    const std::lock_guard lock(mutex);
    seen = std::move(incoming);
    respond({204, {}, ""});
  });
  const auto client = client_of(*server);

  const auto answer =
      client->send({Method::kPatch, "/p", {{"Authorization", "Bearer t"}}, "{}"}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 204);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(seen.request.method, Method::kPatch);
  EXPECT_EQ(header_value(seen.request.headers, "authorization"), "Bearer t");
  EXPECT_EQ(seen.request.body, "{}");
  EXPECT_EQ(seen.remote_address.substr(0, 10), "127.0.0.1:");
}

TEST(Server, AnswersSeveralRequestsOnOneConnection) {
  const auto server = serve({}, echo);
  RawClient client(server->port());

  for (int i = 0; i < 3; ++i) {
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nmar" + std::to_string(i));
    EXPECT_NE(client.read_until("mar" + std::to_string(i)).find("200 OK"), std::string::npos);
  }
}

TEST(Server, RefusesChunkedBodiesWith411) {
  const auto server = serve({}, echo);
  RawClient client(server->port());

  client.write(
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n");

  EXPECT_EQ(client.read_all().substr(0, 12), "HTTP/1.1 411");
}

TEST(Server, RefusesBodiesAboveTheLimitWith413WithoutReadingThem) {
  const auto server = serve({.max_body_bytes = 1000}, echo);

  const auto answer =
      client_of(*server)->send({Method::kPost, "/", {}, std::string(200'000, 'x')}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 413);
  RawClient claims_much(server->port());
  claims_much.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n");
  EXPECT_EQ(claims_much.read_until("\r\n").substr(0, 12), "HTTP/1.1 413");
}

TEST(Server, RefusesHeadersAboveTheLimitWith431) {
  const auto server = serve({.max_header_bytes = 1024}, echo);

  const auto answer = client_of(*server)->send(
      {Method::kGet, "/", {{"X-Large", std::string(4000, 'x')}}, ""}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 431);
}

TEST(Server, RefusesNoiseWith400AndStrangeMethodsWith405) {
  const auto server = serve({}, echo);

  RawClient noise(server->port());
  noise.write("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(noise.read_all().substr(0, 12), "HTTP/1.1 400");
  RawClient trace(server->port());
  trace.write("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(trace.read_all().substr(0, 12), "HTTP/1.1 405");
}

TEST(Server, ClosesAConnectionThatSendsNoHeaderInTime) {
  const auto server = serve({.header_time = 1s}, echo);
  RawClient client(server->port());

  client.write("GET / HT");

  EXPECT_EQ(client.read_all(), "");
}

TEST(Server, TakesALateAnswerFromAnotherThread) {
  std::jthread late;
  const auto server = serve({}, [&](IncomingRequest, Responder respond) {
    late = std::jthread([respond = std::move(respond)] { respond({200, {}, "late"}); });
  });

  const auto answer = client_of(*server)->send({Method::kGet, "/", {}, ""}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "late");
}

TEST(Server, AnswersForAHandlerThatForgets) {
  const auto server = serve({}, [](IncomingRequest, const Responder&) {});

  const auto answer = client_of(*server)->send({Method::kGet, "/", {}, ""}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 500);
}

TEST(Server, AnswersOnlyOnceAndNotAfterStop) {
  std::mutex mutex;
  std::vector<Responder> kept;
  auto server = serve({}, [&](IncomingRequest, Responder respond) {
    const std::lock_guard lock(mutex);
    respond({200, {}, "first"});
    respond({200, {}, "second"});
    kept.push_back(std::move(respond));
  });
  const auto client = client_of(*server);

  const auto answer = client->send({Method::kGet, "/", {}, ""}, soon(), {});
  server.reset();
  kept[0]({200, {}, "too late"});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "first");
}

TEST(Server, HoldsTwoHundredPollsOnTwoThreads) {
  constexpr int kPolls = 200;
  std::mutex mutex;
  std::vector<Responder> polls;
  auto server =
      serve({.max_strangers_of_one_address = kPolls}, [&](IncomingRequest, Responder respond) {
        const std::lock_guard lock(mutex);
        polls.push_back(std::move(respond));
      });
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kPolls; ++i) {
    clients.push_back(std::make_unique<RawClient>(server->port()));
    clients.back()->write("GET /plan HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  }
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return polls.size();
  };
  for (const auto end = soon(); count() < kPolls && std::chrono::steady_clock::now() < end;) {
    std::this_thread::yield();
  }
  ASSERT_EQ(count(), std::size_t{kPolls});

  for (const auto& respond : polls) respond({200, {}, "plan"});

  for (const auto& client : clients) {
    EXPECT_NE(client->read_all().find("\r\n\r\nplan"), std::string::npos);
  }
}

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

bool answers(RawClient& client) {
  client.write(kGet);
  return client.read_until("\r\n\r\n").find("200 OK") != std::string::npos;
}

TEST(Server, ProvenConnectionsAreKeptAndTheNewcomerIsClosed) {
  const auto server =
      serve({.max_connections = 1}, [](IncomingRequest in, const Responder& respond) {
        in.proven();
        respond({200, {}, ""});
      });
  RawClient first(server->port());
  ASSERT_TRUE(answers(first));

  RawClient second(server->port());
  EXPECT_EQ(second.read_all(), "");
  EXPECT_TRUE(answers(first));
  server->set_max_connections(2);
  RawClient third(server->port());

  EXPECT_TRUE(answers(third));
}

TEST(Server, IdleConnectionsKeepNobodyOut) {
  const auto server = serve({.max_connections = 4, .header_time = 3600s}, echo);
  std::vector<std::unique_ptr<RawClient>> held;
  for (int i = 0; i < 20; ++i) {
    held.push_back(std::make_unique<RawClient>(server->port()));
    if (i % 2 == 0) held.back()->write("GET /half HTTP/1.1\r\n");
  }

  RawClient scraper(server->port());

  EXPECT_TRUE(answers(scraper));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(held[i]->read_all(), "") << i;
}

TEST(Server, OneAddressHasItsShareAndTheOthersKeepTheirs) {
  const auto server = serve({.max_connections = 10, .max_strangers_of_one_address = 3}, echo);
  RawClient other(server->port(), 2);
  ASSERT_TRUE(answers(other));

  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 20; ++i) flood.push_back(std::make_unique<RawClient>(server->port()));
  for (int i = 0; i < 17; ++i) EXPECT_EQ(flood[i]->read_all(), "") << i;

  EXPECT_TRUE(answers(other));
}

TEST(Server, TheConnectionGoesThatAskedLongestAgo) {
  const auto server = serve({.max_connections = 2}, echo);
  RawClient scraper(server->port()), idle(server->port());
  ASSERT_TRUE(answers(idle));
  ASSERT_TRUE(answers(scraper));

  RawClient last(server->port());
  ASSERT_TRUE(answers(last));

  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(answers(scraper));
}

TEST(Server, AnswersHeadWithTheLengthAndWithoutTheBody) {
  const auto server = serve({}, [](IncomingRequest in, const Responder& respond) {
    respond({200, {}, in.request.method == Method::kGet ? "page" : ""});
  });
  RawClient client(server->port());

  client.write("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string head = client.read_until("\r\n\r\n");
  const std::string next = client.read_until("page");

  EXPECT_NE(head.find("Content-Length: 4\r\n"), std::string::npos) << head;
  EXPECT_EQ(next.substr(0, 12), "HTTP/1.1 200") << next;
}

TEST(Server, StopEndsOpenPolls) {
  std::atomic<int> polls = 0;
  std::mutex mutex;
  std::vector<Responder> kept;
  auto server = serve({}, [&](IncomingRequest, Responder respond) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(respond));
    ++polls;
  });
  RawClient client(server->port());
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  for (const auto end = soon(); polls == 0 && std::chrono::steady_clock::now() < end;) {
    std::this_thread::yield();
  }

  server->stop();
  server->stop();

  EXPECT_EQ(client.read_all(), "");
}

TEST(Server, ReportsAPortInUse) {
  const auto server = serve({}, echo);

  const auto second = make_server({.address = "127.0.0.1", .port = server->port()}, echo);

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_EQ(second.error().message,
            "port " + std::to_string(server->port()) + " of 127.0.0.1: address already in use");
}

TEST(Server, ListensOnIpv4WhenTheAddressIsEmpty) {
  auto server = make_server({}, echo);
  ASSERT_TRUE(server.ok()) << server.error().message;

  const auto answer = client_of(**server)->send({Method::kGet, "/", {}, ""}, soon(), {});

  EXPECT_TRUE(answer.ok());
}

class Tls : public testing::Test {
 protected:
  static TlsIdentity identity(const test::Certificate& authority, const std::string& name) {
    const auto made = test::make_certificate(authority, {name});
    return {made.certificate_pem, made.key_pem};
  }
  std::string ca_file(const test::Certificate& authority) const {
    return dir_.file("ca.crt", authority.certificate_pem);
  }
  Result<Response> get(const Server& server, const Options& options) const {
    return client_of(server, options)->send({Method::kGet, "/", {}, ""}, soon(), {});
  }

  const test::Certificate authority_ = test::make_authority("one");
  test::TempDir dir_;
};

TEST_F(Tls, AcceptsAServerWithItsIpAddress) {
  const auto server = serve({.tls = identity(authority_, "127.0.0.1")}, echo);

  const auto answer = get(*server, {.ca_file = ca_file(authority_)});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
}

TEST_F(Tls, RefusesAnotherAuthority) {
  const auto server = serve({.tls = identity(test::make_authority("two"), "127.0.0.1")}, echo);

  const auto answer = get(*server, {.ca_file = ca_file(authority_)});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NE(answer.error().message.find("certificate not accepted"), std::string::npos)
      << answer.error().message;
}

TEST_F(Tls, AcceptsAnAuthorityBelowTheRoot) {
  const auto middle = test::make_authority("middle", &authority_);
  TlsIdentity leaf = identity(middle, "127.0.0.1");
  leaf.certificate_pem += middle.certificate_pem;
  const auto server = serve({.tls = leaf}, echo);

  EXPECT_TRUE(get(*server, {.ca_file = ca_file(middle)}).ok());
  EXPECT_TRUE(get(*server, {.ca_file = ca_file(authority_)}).ok());
  EXPECT_FALSE(get(*server, {.ca_file = ca_file(test::make_authority("middle"))}).ok());
}

TEST_F(Tls, RefusesAnotherName) {
  const auto server = serve({.tls = identity(authority_, "127.0.0.9")}, echo);

  const auto answer = get(*server, {.ca_file = ca_file(authority_)});

  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("mismatch"), std::string::npos) << answer.error().message;
}

TEST_F(Tls, ChecksTheGivenServerNameInsteadOfTheAddress) {
  const auto server = serve({.tls = identity(authority_, "operator.weir.svc")}, echo);
  Options options{.ca_file = ca_file(authority_)};

  options.tls_name = "operator.weir.svc";
  EXPECT_TRUE(get(*server, options).ok());
  options.tls_name = "other.weir.svc";
  EXPECT_FALSE(get(*server, options).ok());
}

TEST_F(Tls, TakesAuthoritiesFromMemory) {
  const auto server = serve({.tls = identity(authority_, "127.0.0.1")}, echo);
  const auto other = test::make_authority("two");

  EXPECT_TRUE(get(*server, {.ca_pem = other.certificate_pem + authority_.certificate_pem}).ok());
  EXPECT_FALSE(get(*server, {.ca_pem = other.certificate_pem}).ok());
  EXPECT_FALSE(make_beast_transport({.base_url = "https://127.0.0.1:1", .ca_pem = "no PEM"}).ok());
  const auto own = test::make_certificate(other, {"client"});
  EXPECT_TRUE(get(*server, {.ca_pem = authority_.certificate_pem,
                            .cert_pem = own.certificate_pem,
                            .key_pem = own.key_pem})
                  .ok());
  EXPECT_FALSE(make_beast_transport({.base_url = "https://127.0.0.1:1",
                                     .ca_pem = authority_.certificate_pem,
                                     .cert_pem = own.certificate_pem,
                                     .key_pem = authority_.key_pem})
                   .ok());
}

TEST_F(Tls, TakesAnyCertificateIfItIsToldTo) {
  const auto server = serve({.tls = identity(authority_, "127.0.0.9")}, echo);

  EXPECT_TRUE(get(*server, {.insecure = true}).ok());
}

TEST_F(Tls, ServesARotatedCertificateToNewConnections) {
  const auto authority2 = test::make_authority("two");
  const auto server = serve({.tls = identity(authority_, "127.0.0.1")}, echo);
  ASSERT_TRUE(get(*server, {.ca_file = ca_file(authority_)}).ok());

  server->set_tls(identity(authority2, "127.0.0.1"));

  EXPECT_FALSE(get(*server, {.ca_file = ca_file(authority_)}).ok());
  EXPECT_TRUE(get(*server, {.ca_file = ca_file(authority2)}).ok());
  server->set_tls({"no certificate", "no key"});
  EXPECT_TRUE(get(*server, {.ca_file = ca_file(authority2)}).ok());
}

TEST_F(Tls, RefusesAnUnreadableAuthorityByName) {
  const auto transport = make_beast_transport(
      {.base_url = "https://127.0.0.1:1", .ca_file = dir_.file("bad.crt", "not PEM")});

  ASSERT_FALSE(transport.ok());
  EXPECT_EQ(transport.error().code, Code::kInvalid);
  EXPECT_NE(transport.error().message.find("bad.crt"), std::string::npos);
  EXPECT_FALSE(make_beast_transport({.base_url = "https://127.0.0.1:1"}).ok());
}

TEST_F(Tls, RefusesABadServerCertificateAtTheStart) {
  const auto server = make_server({.address = "127.0.0.1", .tls = {"no", "no"}}, echo);

  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, Code::kInvalid);
}

TEST(Client, ReportsARefusedConnection) {
  auto server = serve({}, echo);
  const auto client = client_of(*server);
  server.reset();

  const auto answer = client->send({Method::kGet, "/", {}, ""}, soon(), {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
}

// A lookup takes a while, and that is no lack of an answer.
TEST(Client, ReportsARefusedConnectionOfANamedHost) {
  auto server = serve({}, echo);
  const int port = server->port();
  server.reset();
  const auto client =
      *make_beast_transport({.base_url = "http://localhost:" + std::to_string(port)});

  const auto answer = client->send({Method::kGet, "/", {}, ""}, soon(), {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
}

class SilentServer : public testing::Test {
 protected:
  std::mutex mutex_;
  std::vector<Responder> kept_;
  std::atomic<bool> arrived_ = false;
  // Last: its threads end before what they use.
  std::unique_ptr<Server> server_ = serve({}, [this](IncomingRequest, Responder respond) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(respond));
    arrived_.store(true);
  });
};

TEST_F(SilentServer, SendEndsAtItsDeadline) {
  const auto answer = client_of(*server_)->send({Method::kGet, "/", {}, ""}, in(30ms), {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kTimeout);
}

TEST_F(SilentServer, StreamEndsAfterSilence) {
  const auto client = client_of(*server_, {.stream_idle = 1s});

  const auto answer = client->stream({Method::kGet, "/", {}, ""}, {}, [](std::string_view) {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kTimeout);
}

TEST_F(SilentServer, SendEndsAtAStopRequest) {
  std::stop_source stop;
  const std::jthread stopper([&] {
    while (!arrived_.load()) std::this_thread::yield();
    stop.request_stop();
  });

  const auto answer =
      client_of(*server_)->send({Method::kGet, "/", {}, ""}, soon(), stop.get_token());

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kCancelled);
}

TEST_F(SilentServer, SendDoesNotStartAfterAStopRequest) {
  std::stop_source stop;
  stop.request_stop();

  const auto answer =
      client_of(*server_)->send({Method::kGet, "/", {}, ""}, soon(), stop.get_token());

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kCancelled);
  EXPECT_FALSE(arrived_.load());
}

// A server of raw bytes: the tests write what a peer might send.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    listen(listener_, 1);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { run(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  std::unique_ptr<Transport> client() const {
    return *make_beast_transport({.base_url = "http://127.0.0.1:" + std::to_string(port_)});
  }

 private:
  void run() const {
    const int peer = accept(listener_, nullptr, nullptr);
    if (peer < 0) return;
    char buffer[4096];
    if (recv(peer, buffer, sizeof buffer, 0) > 0) {
      for (const auto& piece : pieces_) send(peer, piece.data(), piece.size(), MSG_NOSIGNAL);
    }
    ::close(peer);
  }
  std::vector<std::string> pieces_;
  int listener_ = -1, port_ = 0;
  std::jthread thread_;
};

TEST(Client, StreamsChunksAsTheyCome) {
  const ScriptedServer server({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                               "3\r\none\r\n", "4\r\n two\r\n0\r\n\r\n"});
  std::string got;

  const auto answer = server.client()->stream({Method::kGet, "/", {}, ""}, {},
                                              [&](std::string_view bytes) { got += bytes; });

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(got, "one two");
}

TEST(Client, KeepsTheBodyOfARefusedStream) {
  const ScriptedServer server({"HTTP/1.1 410 Gone\r\nContent-Length: 7\r\n\r\nexpired"});
  bool called = false;

  const auto answer = server.client()->stream({Method::kGet, "/", {}, ""}, {},
                                              [&](std::string_view) { called = true; });

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 410);
  EXPECT_EQ(answer->body, "expired");
  EXPECT_FALSE(called);
}

TEST(Client, ReportsAnAnswerCutInTheMiddle) {
  const ScriptedServer server({"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"});

  const auto answer = server.client()->send({Method::kGet, "/", {}, ""}, soon(), {});

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
}

TEST(Client, ReadsABodyThatEndsWithTheConnection) {
  const ScriptedServer server({"HTTP/1.0 200 OK\r\n\r\n", "to the end"});

  const auto answer = server.client()->send({Method::kGet, "/", {}, ""}, soon(), {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "to the end");
}

TEST(Client, ReportsAnAnswerThatIsNotHttp) {
  const ScriptedServer server({"SSH-2.0-OpenSSH_9.2\r\n\r\n"});

  EXPECT_FALSE(server.client()->send({Method::kGet, "/", {}, ""}, soon(), {}).ok());
}

}  // namespace server_test
}  // namespace weir::http
