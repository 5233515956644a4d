// SPDX-License-Identifier: Apache-2.0
// The sending end of a link, whose other end the test plays: it says how long each message took.
#include "worker/transport/tcp/outgoing_link.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/relay.h"
#include "tests/worker/transport/tcp/rig.h"

namespace weir::transport::test {
namespace outgoing_link_test {

using tcp::FrameHeader;
using tcp::FrameType;

constexpr std::size_t kMessage = 3 * tcp::kPartBytes + 1;  // four parts
constexpr std::uint64_t kInFlight = 2;  // a trial begins with messages that have not started
// Much longer than a message takes here, so that the link counts as busy.
constexpr std::chrono::nanoseconds kWhole = 1s, kInParts = 500ms;

// A link of some connections, one of which carries only pings. All runs on the test's thread.
class PlayedLink {
 public:
  explicit PlayedLink(int connections) : watch_(std::make_shared<tcp::SocketWatch>(context_)) {
    const auto [listener, port] = listen_anywhere();
    tcp::Joined joined{to(1), address(1, port), {}};
    for (int i = 0; i < connections; ++i) {
      ends_.push_back({.socket = dial(port)});
      const int own = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      // A write takes little, so that it delays no ping.
      const int small = 256 * 1024;
      ::setsockopt(own, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
      joined.sockets.emplace_back(context_, boost::asio::ip::tcp::v4(), own);
    }
    ::close(listener);
    link_ = std::make_shared<tcp::OutgoingLink>(std::move(joined),
                                                tcp::LinkContext{.generation = {1, 0},
                                                                 .dead_after = 30s,
                                                                 .context = context_,
                                                                 .watch = *watch_,
                                                                 .engine_drives = driven_,
                                                                 .wake_engine = [] {}},
                                                std::nullopt, true);
    link_->start({.sent = [this](std::uint64_t, const Transfer&) { ++sent_; },
                  .failed = [](const std::string& reason) { ADD_FAILURE() << reason; }});
    write(0, {.type = FrameType::kCredit, .sequence = kInFlight});
  }
  ~PlayedLink() {
    for (const End& end : ends_) ::close(end.socket);
  }
  PlayedLink(const PlayedLink&) = delete;
  PlayedLink& operator=(const PlayedLink&) = delete;

  // Messages that are there from the beginning, so that the link is busy until the last has come.
  // Several connections carry twice as much. No heartbeat comes in between.
  void carry(int messages, Time deadline) {
    const device::Buffer buffer = make_buffer(kMessage);
    for (int i = 0; i < messages; ++i) link_->send(buffer, kMessage);
    while (sent_ < messages && std::chrono::steady_clock::now() < deadline) {
      for (const auto& connection : link_->connections()) link_->serve(*connection, true, true);
      for (auto end = ends_.rbegin(); end != ends_.rend(); ++end) {
        while (read(*end)) {
        }
      }
    }
    EXPECT_EQ(sent_, messages);
  }
  LinkCounters counters() const { return link_->counters(); }

 private:
  struct End {
    int socket = -1;
    std::array<std::byte, tcp::kFrameHeaderBytes> head{};
    std::size_t read = 0;  // bytes of it
    FrameHeader header{};
    std::uint64_t left = 0;  // bytes of the payload
  };

  void write(std::size_t end, FrameHeader header, std::span<const std::byte> payload = {}) {
    header.revision = 1;
    header.length = payload.size();
    const auto head = tcp::encode_frame(header);
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    EXPECT_EQ(::send(ends_[end].socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Returns false if nothing more has come.
  bool read(End& end) {
    if (end.left > 0) {
      const std::size_t most = std::min<std::size_t>(end.left, payload_.size());
      const ssize_t count = ::recv(end.socket, payload_.data(), most, MSG_DONTWAIT);
      if (count <= 0) return false;
      end.left -= static_cast<std::uint64_t>(count);
    } else {
      const ssize_t count =
          ::recv(end.socket, end.head.data() + end.read, end.head.size() - end.read, MSG_DONTWAIT);
      if (count <= 0) return false;
      end.read += static_cast<std::size_t>(count);
      if (end.read < end.head.size()) return true;
      end.read = 0;
      end.header = *tcp::decode_frame(end.head);
      end.left = end.header.length;
    }
    if (end.left == 0) answer(end);
    return true;
  }
  void answer(const End& end) {
    const FrameHeader& frame = end.header;
    if (frame.type == FrameType::kPing) {
      return write(static_cast<std::size_t>(&end - ends_.data()),
                   {.type = FrameType::kPong, .sequence = frame.sequence});
    }
    if (frame.type == FrameType::kData) arrived_[frame.sequence] = kWhole;
    if (frame.type == FrameType::kPart && ++parts_[frame.sequence] == tcp::parts_of(kMessage)) {
      arrived_[frame.sequence] = kInParts;
    }
    for (auto next = arrived_.find(acknowledged_); next != arrived_.end();
         next = arrived_.find(acknowledged_)) {
      write(0, {.type = FrameType::kCredit, .sequence = acknowledged_ + 1 + kInFlight});
      write(0, {.type = FrameType::kAcknowledgement, .sequence = acknowledged_++},
            tcp::encode_acknowledgement({static_cast<std::int64_t>(kMessage), next->second}));
    }
  }

  boost::asio::io_context context_;
  std::shared_ptr<tcp::SocketWatch> watch_;
  const std::atomic<bool> driven_ = true;
  std::vector<End> ends_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(tcp::kPartBytes);
  std::map<std::uint64_t, std::chrono::nanoseconds> arrived_;
  std::map<std::uint64_t, std::size_t> parts_;
  std::uint64_t acknowledged_ = 0;
  std::shared_ptr<tcp::OutgoingLink> link_;
  int sent_ = 0;
};

// Until a ping has come back without data the path would count as shared. On a busy machine pings
// of a trial wait, and it says so, too; the next link tries again.
TEST(OutgoingLink, ThatIsAlwaysBusyKnowsTheRoundTripOfItsHandshake) {
  const Time deadline = soon();
  int raised = 0;
  while (raised == 0 && std::chrono::steady_clock::now() < deadline) {
    PlayedLink link(3);
    link.carry(40, deadline);
    const LinkCounters counters = link.counters();
    raised = static_cast<int>(counters.connection_probes.raised);
    EXPECT_EQ(counters.connections, raised == 0 ? 1 : 2);
    EXPECT_EQ(counters.connection_probes.raised + counters.connection_probes.shared, 1);
  }
  EXPECT_EQ(raised, 1);
}

}  // namespace outgoing_link_test
}  // namespace weir::transport::test
