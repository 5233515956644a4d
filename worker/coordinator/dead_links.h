// SPDX-License-Identifier: Apache-2.0
// Links between two connected workers of which one gets no answer from the data port of the other
// (worker/coordinator/README.md "Dead links"). No socket; time and members are arguments. Used only
// on the coordinator's thread.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

// Workers find dead links at about the same time.
inline constexpr std::chrono::seconds kOthersFind{1};

class DeadLinks {
 public:
  // Returns false if that address is of no connected member, so that its loss will be told.
  bool add(int from, const protocol::Unanswered& unanswered, const Members& members,
           SteadyTime now);
  // The answer to a probe; rtt_seconds is 0 if none came.
  void probed(int from, const protocol::Probed& answer);
  // Ranks of this plan train, so they have met.
  void met(const schedule::Plan& plan, const Members& members);
  // Forgets links of workers whose pods have been made again.
  void follow(const Members& members);

  // Whether no other one is to be expected soon.
  bool settled(SteadyTime now) const;
  bool within(const schedule::Plan& plan, const Members& members) const;
  // Adds replicas to `without` until no dead link is left between the ranks of the others: the one
  // with the most of them first, of equal ones the highest. That may be all replicas.
  void leave_out(std::set<int>& without, const schedule::Plan& plan, const Members& members) const;
  // PROBE of each link within the plan that was not probed lately: training goes on meanwhile.
  Outgoing probes(const schedule::Plan& plan, const Members& members, SteadyTime now);
  std::vector<protocol::DeadLink> told(const Members& members, SteadyTime now) const;
  // E.g. "pod a-0 gets no answer from pod a-1 at 10.0.0.7:7071, and 2 other links are dead".
  std::string text(const Members& members) const;

 private:
  struct Link {
    int from = 0, to = 0;  // worker indexes; each pair once, as it was told first
    std::string from_uid, to_uid;
    std::string address;
    SteadyTime since{}, probed{};
    bool asked = false;  // a probe is under way
  };
  struct Ends {
    int from = 0, to = 0;  // replicas
  };
  // The links between two ranks of the plan.
  std::vector<Ends> ends_in(const schedule::Plan& plan, const Members& members) const;

  std::vector<Link> links_;  // the oldest first
};

}  // namespace weir::coordinator
