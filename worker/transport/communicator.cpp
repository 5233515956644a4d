// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/communicator.h"

namespace weir::transport {

std::string name_of(const PeerAddress& peer) {
  const bool v6 = peer.ip.find(':') != std::string::npos;
  return "stage " + std::to_string(peer.stage) + " at " + (v6 ? "[" + peer.ip + "]" : peer.ip) +
         ":" + std::to_string(peer.data_port);
}

}  // namespace weir::transport
