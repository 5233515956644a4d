// SPDX-License-Identifier: Apache-2.0
// Common part of both ends of a link: its communicator, its names, and the state for the watchdog.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "worker/transport/communicator.h"
#include "worker/transport/nccl/watched.h"

namespace weir::transport::nccl {

struct WatchedLink : Watched {
  WatchedLink(const LinkEnd& of, std::string its_name, std::unique_ptr<NcclComm> its_comm)
      : Watched(std::move(its_name), std::move(its_comm)), end(of) {}

  const LinkEnd end;

  Error left_early() const { return {Code::kUnavailable, name + ": left, but messages are due"}; }
  Error wrong(const std::string& what) const { return {Code::kInvalid, name + ": " + what}; }

  // Launches messages in order with post(message). Returns true if the communicator is still busy
  // with the last launch.
  template <class Messages, class Post>
  Result<bool> launch(Messages&& messages, Post post) {
    for (auto& message : messages) {
      if (message.launched) continue;
      const Result<bool> ready = comm->ready();
      if (!ready) return broken(ready.error());
      if (!*ready) return true;
      const Status posted = post(message);
      if (!posted) return broken(posted.error());
      message.launched = true;
    }
    return false;
  }

  // Calls note(message, timing) for each launched message that has finished since the last call.
  template <class Messages, class Note>
  Status take_finished(Messages&& messages, Note note) {
    for (auto& message : messages) {
      if (!message.launched) break;
      if (message.finished) continue;
      const Result<std::optional<Timing>> finished = comm->take_finished();
      if (!finished) return broken(finished.error());
      if (!finished->has_value()) break;
      message.finished = true;
      note(message, **finished);
    }
    return Unit{};
  }
};

// A message at either end.
struct Message {
  device::Buffer buffer;
  std::size_t bytes = 0;
  std::unique_ptr<Mark> ready;  // done when the buffer may be used; null: it may, or host memory
  bool by_nccl = false;
  bool launched = false;
  bool finished = false;  // at this end
};

}  // namespace weir::transport::nccl
