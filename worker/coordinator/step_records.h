// SPDX-License-Identifier: Apache-2.0
// Gathers what the flight recorders of all ranks of a plan hold of some steps: STEPS_WANTED out,
// STEPS in. No socket; time is an argument. Octets of ranks are not read here. Used only on the
// coordinator's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

// Steps that are complete on all ranks of the plan, of replicas that are not lost; nothing while
// one of them has told no step.
std::optional<std::int64_t> complete_on_all(const schedule::Plan& plan, const Members& members,
                                            const std::set<int>& lost);

class StepRecords {
 public:
  struct Request {
    std::string id;                 // of one request at a time
    std::int64_t from = 0, to = 0;  // completed before the first and the last step
    bool open = false;              // with what each rank does now
    std::size_t most_bytes = 0;     // of all records together
    int replica = -1;               // only its ranks; < 0: all
  };
  struct Gathered {
    std::string id;
    std::string octets;          // records, one behind the other (worker/timeline/codec.h)
    int ranks = 0, answers = 0;  // that were meant; those whose records are there
  };

  // A request with the id of one under way replaces it.
  Outgoing ask(const Request& request, const schedule::Plan& plan, const Members& members,
               SteadyTime now);
  void on_steps(int index, const protocol::Steps& steps);
  // Requests whose ranks have all answered, or are gone, or have had kPatience. Each once.
  std::vector<Gathered> take(const Members& members, SteadyTime now);

  static constexpr std::chrono::seconds kPatience{3};

 private:
  struct Open {
    Gathered gathered;
    std::size_t most_bytes = 0;
    std::set<int> awaited;  // workers
    SteadyTime deadline{};
  };
  std::map<std::string, Open> open_;
};

}  // namespace weir::coordinator
