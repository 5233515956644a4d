// SPDX-License-Identifier: Apache-2.0
// Looks up the addresses of a host name in the background, with the system's resolver. The C
// library cannot stop a lookup, which may last half a minute if no name server answers. A lookup
// that is given up therefore goes on in the background, and neither its owner nor the end of the
// process waits for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/base/result.h"

namespace weir {

class NameLookup {
 public:
  explicit NameLookup(const std::string& host);  // starts the lookup
  ~NameLookup();                                 // gives the lookup up without waiting
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Returns nothing while the lookup runs, then at least one IP address as text, or kUnavailable
  // with the reason. Does not block.
  std::optional<Result<std::vector<std::string>>> poll();

 private:
  struct Question;
  std::unique_ptr<Question> question_;
};

}  // namespace weir
