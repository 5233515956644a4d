// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/send_buffer.h"

#include <sys/socket.h>

#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/relay.h"
#include "worker/transport/tcp/data_socket.h"

namespace weir::transport::tcp {
namespace send_buffer_test {

constexpr int kLeast = 128 * 1024;

TEST(SendBuffer, StaysSmallOnShortPaths) {
  for (const double round_trip : {0.0, 30e-6, 400e-6}) {
    EXPECT_EQ(send_buffer_bytes(10e9, round_trip, kLeast), kLeast);
  }
  EXPECT_EQ(send_buffer_bytes(1e6, 20e-3, kLeast), kLeast) << "a slow link needs no more";
  EXPECT_EQ(send_buffer_bytes(1e9, 20e-3, 0), 0) << "the kernel's own";
}

// The rate is that of the buffer: as many bytes as the kernel holds, per round trip.
TEST(SendBuffer, GrowsUntilThePathIsFull) {
  constexpr double kPath = 138e6, kRoundTrip = 20e-3;
  int bytes = kLeast;
  for (int look = 0; look < 6; ++look) {
    const double rate = std::min(kPath, bytes / kRoundTrip);
    bytes = send_buffer_bytes(rate, kRoundTrip, kLeast);
  }
  EXPECT_GE(bytes, 2 * kPath * kRoundTrip * 0.99);
  EXPECT_LE(bytes, 2 * kPath * kRoundTrip) << "and no further";
}

TEST(SendBuffer, IsSharedByTheConnectionsOfALink) {
  EXPECT_EQ(share_of_buffer(1'000'000, 4), 250'000);
  EXPECT_EQ(share_of_buffer(kLeast, 8), kLeastSendBuffer);
  EXPECT_EQ(share_of_buffer(10'000, 8), 10'000) << "what the user asks for is small";
}

TEST(SendBuffer, OfASocketMayBeLargerThanTheMachineLetsAProcessAskFor) {
  const auto [listener, port] = test::listen_anywhere();
  DataSocket socket(test::dial(port));
  ::close(listener);
  const auto asked = [&] {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_SNDBUF, &bytes, &size);
    return bytes / 2;
  };
  const auto locked = [&] {
    int lock = 0;
    socklen_t size = sizeof lock;
    ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_BUF_LOCK, &lock, &size);
    return (lock & 1) != 0;
  };
  set_send_buffer(socket.descriptor(), 100'000);
  EXPECT_EQ(asked(), 100'000);
  EXPECT_TRUE(locked());
  set_send_buffer(socket.descriptor(), 1 << 30);
  EXPECT_FALSE(locked()) << "the kernel chooses";
  set_send_buffer(socket.descriptor(), 100'000);
  EXPECT_EQ(asked(), 100'000);
  EXPECT_TRUE(locked());
}

}  // namespace send_buffer_test
}  // namespace weir::transport::tcp
