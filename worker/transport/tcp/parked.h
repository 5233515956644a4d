// SPDX-License-Identifier: Apache-2.0
// Connections that wait without an answer until this rank is as far as they are. Bounded: beyond
// `most` the oldest is closed; a newer attempt with the same wish closes the older one; one whose
// peer gives up is closed. Io thread only.
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "worker/transport/tcp/greeter.h"

namespace weir::transport::tcp {

class Parked {
 public:
  using Greeters = std::list<std::shared_ptr<Greeter>>;

  explicit Parked(std::size_t most);

  void add(const std::shared_ptr<Greeter>& greeter);
  Greeters take();  // all of them, in the order in which they came; none is left
  void close();     // likewise, and closes them

 private:
  const std::size_t most_;
  const std::shared_ptr<Greeters> greeters_;  // shared: a peer may give up when this is gone
};

}  // namespace weir::transport::tcp
