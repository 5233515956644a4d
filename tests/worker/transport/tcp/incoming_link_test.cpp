// SPDX-License-Identifier: Apache-2.0
// Frames that no sound sender sends: the link ends with a reason that names message and part, and
// writes nothing outside the posted buffers.
#include "worker/transport/tcp/incoming_link.h"

#include <array>
#include <atomic>
#include <poll.h>
#include <sys/socket.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/relay.h"
#include "tests/worker/transport/tcp/rig.h"

namespace weir::transport::test {
namespace incoming_link_test {

using tcp::FrameHeader;
using tcp::FrameType;
using tcp::kPartBytes;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kMessage = 2 * kPartBytes + 1000;  // three parts

// A link of some connections, which the test writes at their other ends.
class IncomingLinkTest : public ::testing::Test {
 protected:
  IncomingLinkTest() : watch_(std::make_shared<tcp::SocketWatch>(context_)) {}
  ~IncomingLinkTest() override {
    for (const int peer : peers_) ::close(peer);
  }

  void open(int connections) {
    const auto [listener, port] = listen_anywhere();
    tcp::Joined joined{from(0), address(0, port), {}};
    for (int i = 0; i < connections; ++i) {
      peers_.push_back(dial(port));
      joined.sockets.emplace_back(context_, boost::asio::ip::tcp::v4(),
                                  ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    }
    ::close(listener);
    link_ = std::make_shared<tcp::IncomingLink>(std::move(joined),
                                                tcp::LinkContext{.generation = {1, 0},
                                                                 .dead_after = 30s,
                                                                 .context = context_,
                                                                 .watch = *watch_,
                                                                 .engine_drives = driven_,
                                                                 .wake_engine = [] {}});
    link_->start({.received = [this](std::uint64_t sequence,
                                     const Transfer&) { received_.push_back(sequence); },
                  .failed = [this](const std::string& reason) { reason_ = reason; }});
  }
  void post(std::size_t bytes) {
    posted_.push_back(make_buffer(bytes));
    link_->receive(posted_.back(), bytes);
    link_->flush();
  }
  // A frame on a connection; its payload has that seed.
  void write(int connection, FrameHeader header, std::uint64_t seed = 1) {
    header.revision = 1;
    const auto head = tcp::encode_frame(header);
    const int peer = peers_[static_cast<std::size_t>(connection)];
    ASSERT_EQ(::send(peer, head.data(), head.size(), MSG_NOSIGNAL), ssize_t{head.size()});
    const device::Buffer payload = pattern(header.length, seed);
    for (std::size_t sent = 0; sent < header.length;) {
      serve();  // makes room
      const ssize_t count =
          ::send(peer, payload.data() + sent, header.length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) sent += static_cast<std::size_t>(count);
      if (!reason_.empty()) return;
    }
    serve();
  }
  void serve() {
    for (const auto& connection : link_->connections()) {
      pollfd one{.fd = connection->descriptor(), .events = POLLIN, .revents = 0};
      while (::poll(&one, 1, 1) > 0 && one.revents != 0 && link_->serve(*connection, true, false)) {
      }
    }
  }
  static FrameHeader part(std::uint64_t message, std::uint32_t index,
                          std::uint64_t length = kPartBytes) {
    return {.type = FrameType::kPart, .sequence = message, .length = length, .part = index};
  }
  static FrameHeader whole(std::uint64_t message, std::uint64_t length) {
    return {.type = FrameType::kData, .sequence = message, .length = length};
  }

  boost::asio::io_context context_;
  std::shared_ptr<tcp::SocketWatch> watch_;
  const std::atomic<bool> driven_ = true;
  std::vector<int> peers_;
  std::shared_ptr<tcp::IncomingLink> link_;
  std::vector<device::Buffer> posted_;
  std::vector<std::uint64_t> received_;
  std::string reason_;
};

TEST_F(IncomingLinkTest, PartsComeInAnyOrderAndMessagesAreCompleteInTheirs) {
  open(2);
  post(kMessage);
  post(kMessage);
  post(10);

  write(1, part(0, 2, 1000), 12);
  write(0, part(1, 1), 21);
  write(0, whole(2, 10), 30);
  write(1, part(1, 0), 20);
  write(0, part(1, 2, 1000), 22);
  EXPECT_TRUE(received_.empty()) << "message 0 lacks two parts";
  write(1, part(0, 1), 11);
  write(0, part(0, 0), 10);

  EXPECT_EQ(reason_, "");
  EXPECT_EQ(received_, (std::vector<std::uint64_t>{0, 1, 2}));
  for (std::size_t message = 0; message < 2; ++message) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t bytes = i == 2 ? 1000 : kPartBytes;
      EXPECT_EQ(std::memcmp(posted_[message].data() + i * kPartBytes,
                            pattern(bytes, 10 * (message + 1) + i).data(), bytes),
                0)
          << message << ", part " << i;
    }
  }
}

TEST_F(IncomingLinkTest, APartThatCameTwiceIsNamed) {
  open(2);
  post(kMessage);
  write(0, part(0, 1));
  write(1, part(0, 1));
  EXPECT_THAT(reason_, StartsWith("stage 0 at 127.0.0.1:"));
  EXPECT_THAT(reason_, HasSubstr(", link 0-1 forward, connection 2 of 2: message 0, part 1: came "
                                 "twice"));
}

TEST_F(IncomingLinkTest, APartBeyondTheEndIsNamed) {
  open(2);
  post(kMessage);
  write(0, part(0, 3));
  EXPECT_THAT(reason_, HasSubstr("message 0, part 3: the receiver expects 3"));
}

TEST_F(IncomingLinkTest, APartOfAnotherLengthIsNamed) {
  open(2);
  post(kMessage);
  write(0, part(0, 2, 1001));
  EXPECT_THAT(reason_, HasSubstr("message 0, part 2: has 1001 bytes, the receiver expects 1000"));
}

TEST_F(IncomingLinkTest, APartOfAMessageThatWasNotPostedIsNamed) {
  open(2);
  post(kMessage);
  write(1, part(1, 0));
  EXPECT_THAT(reason_, HasSubstr("message 1 where 0 is due and 1 are granted"));
}

TEST_F(IncomingLinkTest, APartOnALinkOfOneConnectionIsNamed) {
  open(1);
  post(kMessage);
  write(0, part(0, 0));
  EXPECT_THAT(reason_, HasSubstr("message 0, part 0: the link has one connection"));
}

TEST_F(IncomingLinkTest, AWholeMessageBelongsToTheFirstConnectionAndComesOnce) {
  open(2);
  post(kMessage);
  write(1, whole(0, kMessage));
  EXPECT_THAT(reason_, HasSubstr("a whole message came on another connection than the first"));
}

TEST_F(IncomingLinkTest, AMessageComesWholeOrInParts) {
  open(2);
  post(kMessage);
  write(1, part(0, 0));
  write(0, whole(0, kMessage));
  EXPECT_THAT(reason_, HasSubstr("message 0 came twice"));
}

// The message before it is not complete, so its slot is still there.
TEST_F(IncomingLinkTest, APartOfAMessageThatHasComeWholeIsNamed) {
  open(2);
  post(kMessage);
  post(kMessage);
  write(1, part(0, 0));
  write(0, whole(1, kMessage));
  write(1, part(1, 0));
  EXPECT_THAT(reason_, HasSubstr("message 1, part 0: the message has come whole"));
}

}  // namespace incoming_link_test
}  // namespace weir::transport::test
