// SPDX-License-Identifier: Apache-2.0
// Connections that wait without an answer until this rank expects them. Above
// `most` connections the oldest is closed. A newer attempt for the same purpose closes the older
// one. A connection whose peer gives up is closed. Io thread only.
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "worker/wire/acceptor.h"

namespace weir::wire {

class Pending {
 public:
  using Acceptors = std::list<std::shared_ptr<Acceptor>>;

  explicit Pending(std::size_t most);

  void add(const std::shared_ptr<Acceptor>& acceptor);
  Acceptors take();  // removes and returns all, in the order in which they came
  void close();      // removes and closes all

 private:
  const std::size_t most_;
  // Shared: a peer may give up after this object has gone.
  const std::shared_ptr<Acceptors> acceptors_;
};

}  // namespace weir::wire
