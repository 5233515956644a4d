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
};

}  // namespace weir::transport::nccl
