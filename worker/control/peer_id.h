// SPDX-License-Identifier: Apache-2.0
// The identity of a rank, as body of the HELLO with which it connects to port 7070
// (wire/handshake.h).
#pragma once

#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::control {

constexpr char kComponent[] = "control";  // in the log

struct PeerId {
  int worker_index = 0;
  std::string pod_uid;
};

std::string encode_peer(const PeerId& peer);
// kInvalid: an impossible index, or a pod uid that is not one word.
Result<PeerId> decode_peer(std::string_view body);

}  // namespace weir::control
