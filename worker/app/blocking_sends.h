// SPDX-License-Identifier: Apache-2.0
// Sends that hold up the engine, as those of a framework on its compute stream do: they measure
// what our asynchronous ones are worth (worker/schedule/README.md "Credits"). Emulation only.
#pragma once

#include <memory>

#include "worker/transport/communicator.h"

namespace weir::app {

// After each send on a channel, send() returns once at most `window` messages of that channel are
// on their way, that is sent and not yet received whole by the peer; or once the generation is
// broken. 0: every send blocks.
std::unique_ptr<transport::Communicator> with_blocking_sends(
    std::unique_ptr<transport::Communicator> inner, int window);

}  // namespace weir::app
