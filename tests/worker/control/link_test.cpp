// SPDX-License-Identifier: Apache-2.0
// Both ends of port 7070 over loopback, and peers that do not behave.
#include "worker/control/link.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <future>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/worker/control/recording_engine.h"
#include "worker/control/agent.h"
#include "worker/protocol/codec.h"
#include "worker/wire/handshake.h"

namespace weir::control {
namespace link_test {

using namespace std::chrono_literals;
using test::eventually;

const std::string kKey = "the key of the job";

// A coordinator's end that keeps what it hears.
class Coordinator {
 public:
  explicit Coordinator(RankServerOptions options = {}, int port = 0) {
    options.listen_ip = "127.0.0.1";
    options.port = port;
    options.job_uid = "job";
    options.job_key = kKey;
    auto made = make_rank_server(
        options, {.on_message =
                      [this](SessionId id, const PeerId& peer, protocol::Message message) {
                        const std::lock_guard lock(mutex_);
                        session_ = id;
                        peer_ = peer;
                        heard_.push_back(std::move(message));
                      },
                  .on_closed =
                      [this](SessionId, const std::string& why, std::chrono::nanoseconds unheard) {
                        const std::lock_guard lock(mutex_);
                        closed_.push_back(why);
                        unheard_ = unheard;
                      }});
    EXPECT_TRUE(made.ok()) << made.error().message;
    server_ = *std::move(made);
    server_->start();
  }

  int port() const { return server_->port(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  void say(const protocol::Message& message) {
    const auto session = this->session();
    server_->post([this, session, message] { server_->send(session, message); });
  }
  void hang_up() {
    const auto session = this->session();
    server_->post([this, session] { server_->close(session, "test"); });
  }
  // Its thread does nothing for so long, then what has come meanwhile.
  void pause(std::chrono::milliseconds time) {
    std::promise<void> over;
    server_->post([time] { std::this_thread::sleep_for(time); });
    std::this_thread::sleep_for(time);
    server_->post([this, &over] { server_->post([&over] { over.set_value(); }); });
    over.get_future().wait();
  }
  template <class T>
  int count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::ranges::count_if(
        heard_, [](const auto& message) { return std::holds_alternative<T>(message); }));
  }
  template <class T>
  T last() const {
    const std::lock_guard lock(mutex_);
    T result;
    for (const auto& message : heard_) {
      if (const auto* found = std::get_if<T>(&message)) result = *found;
    }
    return result;
  }
  SessionId session() const {
    const std::lock_guard lock(mutex_);
    return session_;
  }
  PeerId peer() const {
    const std::lock_guard lock(mutex_);
    return peer_;
  }
  std::chrono::nanoseconds unheard() const {  // when the last session was closed
    const std::lock_guard lock(mutex_);
    return unheard_;
  }
  std::vector<std::string> closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;  // guards the five below
  SessionId session_ = 0;
  PeerId peer_;
  std::vector<protocol::Message> heard_;
  std::vector<std::string> closed_;
  std::chrono::nanoseconds unheard_{};
  std::unique_ptr<RankServer> server_;
};

AgentOptions options_for(const std::string& address) {
  AgentOptions options{.coordinator = address, .job_uid = "job"};
  options.member = {.pod = "pod-4", .pod_uid = "uid-4", .worker_index = 4};
  options.heartbeat = 20ms;
  return options;
}

std::unique_ptr<Agent> agent_for(const std::string& address, test::RecordingEngine& engine,
                                 AgentCallbacks callbacks = {}) {
  if (!callbacks.job_key) callbacks.job_key = [] { return kKey; };
  return engine.start_agent(options_for(address), std::move(callbacks));
}

// A plain socket of somebody who does not keep the rules.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 30};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Stranger() { ::close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void send(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void send_frame(const std::string& body) const {
    const auto size = htonl(static_cast<std::uint32_t>(body.size()));
    send(std::string(reinterpret_cast<const char*>(&size), sizeof size) + body);
  }
  std::string receive_frame() const {
    std::uint32_t size = 0;
    if (::recv(socket_, &size, sizeof size, MSG_WAITALL) != sizeof size) return "";
    std::string body(ntohl(size), '\0');
    EXPECT_EQ(::recv(socket_, body.data(), body.size(), MSG_WAITALL),
              static_cast<ssize_t>(body.size()));
    return body;
  }
  bool closed_by_peer() const {
    char byte = 0;
    while (true) {
      const auto got = ::recv(socket_, &byte, 1, 0);
      if (got == 0) return true;
      if (got < 0) return errno == ECONNRESET;
    }
  }
  void send_record(wire::RecordType type, const std::string& body) const {
    send(wire::encode_record({type, body}));
  }
  wire::Record receive_record() const {
    std::string prefix(wire::kRecordPrefixBytes, '\0');
    ::recv(socket_, prefix.data(), prefix.size(), MSG_WAITALL);
    const auto decoded = wire::decode_record_prefix(prefix);
    EXPECT_TRUE(decoded);
    wire::Record record{decoded->type, std::string(decoded->body_bytes, '\0')};
    ::recv(socket_, record.body.data(), record.body.size(), MSG_WAITALL);
    return record;
  }
  // Says who it is; returns the text of that.
  std::string say_hello(const std::string& pod_uid) const {
    const std::string hello =
        wire::encode_hello({.job_uid = "job",
                            .purpose = wire::Purpose::kControl,
                            .body = encode_peer({.worker_index = 9, .pod_uid = pod_uid}),
                            .nonce = std::string(wire::kNonceBytes, 'n')});
    send_record(wire::RecordType::kHello, hello);
    return hello;
  }
  void join(const std::string& pod_uid) const {
    const std::string hello = say_hello(pod_uid);
    const auto challenge = wire::decode_challenge(receive_record().body);
    ASSERT_TRUE(challenge);
    send_record(wire::RecordType::kProof, wire::connector_proof(kKey, hello, challenge->nonce));
    EXPECT_EQ(receive_record().type, wire::RecordType::kAccepted);
  }

 private:
  const int socket_;
};

TEST(Link, AnAgentSaysHelloAndAnswersAPlanSwitch) {
  Coordinator coordinator;
  test::RecordingEngine engine;
  const auto agent = agent_for(coordinator.address(), engine);
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));
  EXPECT_EQ(coordinator.last<protocol::Hello>().member.pod, "pod-4");
  EXPECT_EQ(coordinator.peer().worker_index, 4);
  EXPECT_TRUE(agent->connected());

  coordinator.say(protocol::Prepare{.plan = {.job_uid = "job", .revision = 1}});
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Ready>() == 1; }));
  coordinator.say(protocol::Commit{.revision = 1});
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::ReadyState>() == 1; }));
  agent->send(protocol::StageStatus{.epoch = 1, .step = 17});
  agent->send(protocol::Leave{.reason = "finished"});
  agent->flush(std::chrono::steady_clock::now() + 30s);

  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Leave>() == 1; }));
  EXPECT_EQ(coordinator.last<protocol::StageStatus>().step, 17);
}

TEST(Link, AnAgentComesBackAndTellsWhatItRuns) {
  Coordinator coordinator;
  test::RecordingEngine engine;
  std::atomic<int> lost = 0;
  const auto agent =
      agent_for(coordinator.address(), engine,
                {.on_connection = [&](bool up, const std::string&) { lost += up ? 0 : 1; }});
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));
  coordinator.say(protocol::Prepare{.plan = {.job_uid = "job", .revision = 3}, .incarnation = 2});
  coordinator.say(protocol::Commit{.revision = 3});
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::ReadyState>() == 1; }));

  coordinator.hang_up();

  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 2; }));
  EXPECT_GE(lost, 1);
  EXPECT_EQ(coordinator.last<protocol::Hello>().revision, 3U);
  EXPECT_EQ(coordinator.last<protocol::Hello>().incarnation, 2);
}

TEST(Link, AnAgentFindsACoordinatorThatRisesLater) {
  int port = 0;
  {
    port = Coordinator().port();
  }
  test::RecordingEngine engine;
  std::atomic<int> failures = 0;
  const auto agent = agent_for("127.0.0.1:" + std::to_string(port), engine,
                               {.on_connection = [&](bool, const std::string&) { ++failures; }});
  ASSERT_TRUE(eventually([&] { return failures > 0; }));

  const Coordinator coordinator({}, port);

  EXPECT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));
}

TEST(Link, AnAgentFollowsTheCoordinatorThatItIsToldOf) {
  auto first = std::make_unique<Coordinator>();
  const Coordinator second;
  test::RecordingEngine engine;
  std::atomic<int> questions = 0;
  AgentOptions options = options_for(first->address());
  options.unconnected_after = options.ask_every = 20ms;
  const auto agent =
      engine.start_agent(options, {.job_key = [] { return kKey; },
                                   .find_coordinator =
                                       [&] {
                                         // The operator decides after a while.
                                         return ++questions < 3 ? std::string() : second.address();
                                       }});
  ASSERT_TRUE(eventually([&] { return first->count<protocol::Hello>() == 1; }));
  EXPECT_EQ(questions, 0) << "it hears the coordinator";

  first.reset();

  EXPECT_TRUE(eventually([&] { return second.count<protocol::Hello>() == 1; }));
  EXPECT_TRUE(eventually([&] { return agent->connected(); }));
}

// Its machine is gone, so the connection stays open.
TEST(Link, AnAgentAsksWhileTheCoordinatorIsSilentAndStaysUntilAnotherIsNamed) {
  const Coordinator silent({.heartbeat = 1h}), second;
  test::RecordingEngine engine;
  std::atomic<int> questions = 0;
  std::atomic<bool> named = false;
  AgentOptions options = options_for(silent.address());
  options.silent_after = 400ms;
  options.unconnected_after = options.ask_every = 20ms;
  const auto agent = engine.start_agent(options, {.job_key = [] { return kKey; },
                                                  .find_coordinator =
                                                      [&] {
                                                        ++questions;
                                                        return named ? second.address() : "";
                                                      }});
  ASSERT_TRUE(eventually([&] { return questions >= 3; }));
  EXPECT_TRUE(agent->connected());
  EXPECT_EQ(silent.count<protocol::Hello>(), 1);

  named = true;

  EXPECT_TRUE(eventually([&] { return second.count<protocol::Hello>() == 1; }));
}

TEST(Link, AnAgentInDoubtAsksWhateverItHears) {
  const Coordinator first, second;
  test::RecordingEngine engine;
  std::atomic<bool> doubts = false;
  const auto agent = engine.start_agent(options_for(first.address()),
                                        {.job_key = [] { return kKey; },
                                         .find_coordinator = [&] { return second.address(); },
                                         .doubts = [&] { return doubts.load(); }});
  ASSERT_TRUE(eventually([&] { return first.count<protocol::Hello>() == 1; }));
  EXPECT_EQ(second.count<protocol::Hello>(), 0);

  doubts = true;

  EXPECT_TRUE(eventually([&] { return second.count<protocol::Hello>() == 1; }));
  EXPECT_TRUE(eventually([&] { return !first.closed().empty(); }));
}

TEST(Link, AWrongKeyIsRefusedAndTheRightOneAskedForAgain) {
  Coordinator coordinator;
  test::RecordingEngine engine;
  std::atomic<int> asked = 0;
  std::mutex reason_mutex;
  std::string reason;
  const auto agent =
      agent_for(coordinator.address(), engine,
                {.job_key = [&] { return ++asked < 3 ? std::string("an old key") : kKey; },
                 .on_connection =
                     [&](bool up, const std::string& why) {
                       const std::lock_guard lock(reason_mutex);
                       if (!up) reason = why;
                     }});

  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));
  EXPECT_EQ(asked, 3);
  const std::lock_guard lock(reason_mutex);
  EXPECT_EQ(reason, "it does not hold the key of this job");
}

TEST(Link, HeartbeatsKeepAQuietSessionAndSilenceEndsIt) {
  Coordinator coordinator({.heartbeat = 20ms, .dead_after = 1500ms, .tick = 5ms});
  test::RecordingEngine engine;
  const auto agent = agent_for(coordinator.address(), engine);
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));
  Stranger silent(coordinator.port());
  silent.join("silent");

  ASSERT_TRUE(eventually([&] { return !coordinator.closed().empty(); }));

  EXPECT_EQ(coordinator.closed(), std::vector<std::string>{"silent for 1500 ms"});
  EXPECT_GE(coordinator.unheard(), 1500ms);
  EXPECT_TRUE(agent->connected());
}

TEST(Link, AnEndOfThePeerIsNoSilence) {
  Coordinator coordinator({.heartbeat = 20ms, .dead_after = 60s, .tick = 5ms});
  test::RecordingEngine engine;
  auto agent = agent_for(coordinator.address(), engine);
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));

  agent.reset();
  ASSERT_TRUE(eventually([&] { return !coordinator.closed().empty(); }));

  EXPECT_LT(coordinator.unheard(), 30s);
}

// Heartbeats that came meanwhile lie in the socket. A coordinator whose container was stopped, or
// that found no free core, must not count all workers as lost.
TEST(Link, APauseOfTheCoordinatorItselfIsNoSilence) {
  Coordinator coordinator({.dead_after = 1500ms, .tick = 5ms});
  test::RecordingEngine engine;
  const auto agent = agent_for(coordinator.address(), engine);
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));

  for (int i = 0; i < 3; ++i) coordinator.pause(2s);

  EXPECT_TRUE(coordinator.closed().empty()) << coordinator.closed().front();
  EXPECT_TRUE(agent->connected());
}

TEST(Link, HostilePeersEndOnlyTheirOwnSession) {
  Coordinator coordinator({.tick = 5ms, .handshake_time = 300ms});
  test::RecordingEngine engine;
  const auto agent = agent_for(coordinator.address(), engine);
  ASSERT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));

  Stranger huge(coordinator.port()), http(coordinator.port()), silent(coordinator.port());
  huge.send(std::string("\xFF\xFF\xFF\xFF", 4));
  http.send("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(huge.closed_by_peer());
  EXPECT_TRUE(http.closed_by_peer());
  EXPECT_TRUE(silent.closed_by_peer()) << "no handshake in time";
  Stranger cut(coordinator.port());
  cut.send(std::string("\0\0\1", 3));

  EXPECT_TRUE(agent->connected());
  EXPECT_TRUE(coordinator.closed().empty()) << "strangers are not told to the coordinator";
}

TEST(Link, ARankThatWaitsForAChallengeIsToldTheVersion) {
  const Coordinator coordinator({.handshake_time = 100ms});
  const Stranger old(coordinator.port());

  EXPECT_EQ(old.receive_frame(),
            "weir-control/2: no hello came; a rank that speaks weir-control/1 cannot join");
  EXPECT_TRUE(old.closed_by_peer());
}

TEST(Link, AnAgentNamesBothVersionsWhenTheCoordinatorIsOld) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string to = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  test::RecordingEngine engine;
  const auto agent = agent_for(to, engine);

  const int rank = ::accept(listener, nullptr, nullptr);
  const std::string challenge =
      std::string("\0\0\0\x4f", 4) + "weir-control/1 " + std::string(64, 'a');
  ::send(rank, challenge.data(), challenge.size(), MSG_NOSIGNAL);

  EXPECT_TRUE(eventually([&] {
    return agent->trouble() ==
           "coordinator " + to + ": the peer speaks weir-control/1, this worker weir-control/2";
  })) << agent->trouble();
  ::close(rank);
  ::close(listener);
}

TEST(Link, StrangersThatHoldConnectionsKeepNobodyOut) {
  Coordinator coordinator({.handshake_time = 3600s});
  std::vector<std::unique_ptr<Stranger>> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(std::make_unique<Stranger>(coordinator.port()));

  test::RecordingEngine engine;
  const auto agent = agent_for(coordinator.address(), engine);

  EXPECT_TRUE(eventually([&] { return coordinator.count<protocol::Hello>() == 1; }));
  EXPECT_TRUE(idle.front()->closed_by_peer()) << "the oldest goes";
}

TEST(Link, TheAgentEndsWhileAHookWaitsForTheWorldOutside) {
  test::RecordingEngine engine;
  std::promise<void> release;
  std::atomic<bool> waits{false};
  auto agent = agent_for("127.0.0.1:1", engine,
                         {.job_key =
                              [&, released = release.get_future().share()] {
                                waits = true;
                                released.wait();
                                return kKey;
                              },
                          .stopping = [&] { release.set_value(); }});
  ASSERT_TRUE(eventually([&] { return waits.load(); }));

  agent.reset();
}

TEST(Link, TheAgentSaysWhyItIsNotConnectedAndToWhom) {
  test::RecordingEngine engine;
  const auto trouble = [&](const std::string& address) {
    const auto agent = agent_for(address, engine);
    EXPECT_TRUE(eventually([&] { return !agent->trouble().empty(); }));
    return agent->trouble();
  };

  EXPECT_EQ(trouble("127.0.0.1:1"), "coordinator 127.0.0.1:1: Connection refused");
  EXPECT_EQ(trouble("nowhere.invalid:7070")
                .find("coordinator nowhere.invalid:7070: cannot resolve nowhere.invalid: "),
            0U);
  Coordinator coordinator;
  const auto agent = agent_for(coordinator.address(), engine);
  EXPECT_TRUE(eventually([&] { return agent->connected(); }));
  EXPECT_EQ(agent->trouble(), "");
}

TEST(Link, AMemberThatSendsGarbageLosesItsSession) {
  Coordinator coordinator;
  Stranger garbage(coordinator.port()), long_frame(coordinator.port());
  garbage.join("garbage");
  long_frame.join("long");

  garbage.send_frame("{\"type\": \"NO_SUCH\"}");
  long_frame.send(std::string("\x00\x40\x00\x01", 4));  // 4 MiB + 1

  EXPECT_TRUE(garbage.closed_by_peer());
  EXPECT_TRUE(long_frame.closed_by_peer());
  EXPECT_TRUE(eventually([&] { return coordinator.closed().size() == 2; }));
}

TEST(Link, ATakenPortIsNamed) {
  const Coordinator coordinator;

  const auto second = make_rank_server(
      {.listen_ip = "127.0.0.1", .port = coordinator.port(), .job_uid = "job", .job_key = kKey},
      {});

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_EQ(second.error().message,
            "control port " + std::to_string(coordinator.port()) + ": address already in use");
}

TEST(Link, ListensOnBothFamiliesWithoutAnAddress) {
  const auto server = make_rank_server({.job_uid = "job", .job_key = kKey}, {});
  ASSERT_TRUE(server.ok());
  (*server)->start();

  const Stranger caller((*server)->port());

  caller.say_hello("caller");
  EXPECT_EQ(caller.receive_record().type, wire::RecordType::kChallenge);
}

}  // namespace link_test
}  // namespace weir::control
