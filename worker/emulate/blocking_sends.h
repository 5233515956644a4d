// SPDX-License-Identifier: Apache-2.0
// Sends that block the engine, like those of a framework on its compute stream. They show the gain
// of asynchronous sends (worker/schedule/README.md "Credits"). Emulation only.
#pragma once

#include <memory>

#include "worker/transport/communicator.h"

namespace weir::app {

// send() returns once at most `window` messages of its channel are under way, i.e. sent and not yet
// received completely by the peer, or once the generation is broken. With 0 every send blocks.
std::unique_ptr<transport::Communicator> with_blocking_sends(
    std::unique_ptr<transport::Communicator> inner, int window);

}  // namespace weir::app
