// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/communicator.h"

namespace weir::transport {

std::string name_of(const PeerAddress& peer) {
  const bool v6 = peer.ip.find(':') != std::string::npos;
  return "stage " + std::to_string(peer.stage) + " at " + (v6 ? "[" + peer.ip + "]" : peer.ip) +
         ":" + std::to_string(peer.data_port);
}

std::string name_of(const LinkEnd& end) {
  const bool forward = end.channel == Channel::kForward;
  const int from = forward == end.sending ? end.peer_stage - 1 : end.peer_stage;
  return "link " + std::to_string(from) + "-" + std::to_string(from + 1) +
         (forward ? " forward" : " backward");
}

}  // namespace weir::transport
