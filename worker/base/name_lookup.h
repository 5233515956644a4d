// SPDX-License-Identifier: Apache-2.0
// The addresses of a host name, asked of the system's resolver beside the caller. The C library
// cannot stop a question, which may last for half a minute when no name server answers: one that is
// given up goes on there and is forgotten, so that neither its owner nor the end of the process
// waits for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/base/result.h"

namespace weir {

class NameLookup {
 public:
  explicit NameLookup(const std::string& host);  // begins
  ~NameLookup();                                 // gives up, never waits
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Nothing yet; the IPs as text, at least one; or kUnavailable and why. Does not block.
  std::optional<Result<std::vector<std::string>>> poll();

 private:
  struct Question;
  std::unique_ptr<Question> question_;
};

}  // namespace weir
