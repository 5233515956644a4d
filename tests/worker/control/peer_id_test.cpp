// SPDX-License-Identifier: Apache-2.0
#include "worker/control/peer_id.h"

#include <gtest/gtest.h>

#include "worker/wire/handshake.h"

namespace weir::control {
namespace peer_id_test {

TEST(PeerIds, SurviveTheWire) {
  const auto peer = decode_peer(encode_peer({.worker_index = 3, .pod_uid = "pod-uid"}));

  ASSERT_TRUE(peer) << peer.error().message;
  EXPECT_EQ(peer->worker_index, 3);
  EXPECT_EQ(peer->pod_uid, "pod-uid");
}

TEST(PeerIds, ThatAreImpossibleAreRefused) {
  const std::string place(wire::kBodyBytes, '\0');
  for (const std::string& body :
       {std::string(), std::string("GET / HTTP/1.1"), place, place + "two words", place + "line\n",
        encode_peer({.worker_index = -1, .pod_uid = "pod"}),
        encode_peer({.worker_index = 1 << 20, .pod_uid = "pod"})}) {
    const auto peer = decode_peer(body);
    ASSERT_FALSE(peer) << body;
    EXPECT_EQ(peer.error().code, Code::kInvalid) << body;
  }
}

}  // namespace peer_id_test
}  // namespace weir::control
