// SPDX-License-Identifier: Apache-2.0
// From the first HELLO to /register, and again whenever members change. Waits until the members
// have settled, lets one rank per device class time the layers, and probes links of index
// neighbours if asked to. Where ranks have trained, or in a later term, the operator has what an
// earlier coordinator has told: it hears of the members first, and of what newcomers measure
// afterwards. No socket; time is an argument. Does not decide about plans.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/coordinator.h"
#include "worker/coordinator/members.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

using Outgoing = std::vector<std::pair<int, protocol::Message>>;  // by worker index

class Startup {
 public:
  explicit Startup(const Options& options) : options_(options) {}

  struct Step {
    Outgoing send;
    std::optional<protocol::Register> register_now;
    std::vector<std::string> warnings;
  };
  // Call this after any change and on each tick.
  Step advance(const Members& members, SteadyTime now);
  void measured(int index, const protocol::Measured& answer);
  void probed(int index, const protocol::Probed& answer);
  void lost(int index);  // a rank that measures or probes is gone: another one is asked
  void register_again() { registered_version_ = 0; }  // a new leader of the operator asks for it

 private:
  struct Measuring {
    int index = 0;
    SteadyTime deadline{};
    bool others_train = false;  // of its class: it may do so itself before it answers
  };
  struct Probing {  // one pair of neighbours in one round
    int from = 0, to = 0;
    SteadyTime deadline{};
  };

  // These return true when done.
  bool take_measurements(const Members& members, SteadyTime now, bool all, Step& step);
  // all: also classes of which a rank has trained, whose profile the operator should know.
  bool measure_classes(const Members& members, SteadyTime now, bool all, Step& step);
  bool probe_neighbours(const Members& members, SteadyTime now, Step& step);
  double median_rate() const;  // of the probed links; 0 without any
  protocol::Register body(const Members& members, Step& step) const;

  const Options options_;
  std::map<std::string, std::string> profiles_;  // device class -> profile.json; "" = failed
  std::map<std::string, Measuring> measuring_;
  std::set<int> refused_;  // workers that did, so another one of their class is asked
  std::vector<std::string> warnings_;
  int probe_round_ = 0;  // of those that have begun
  std::vector<Probing> probing_;
  std::map<std::pair<int, int>, protocol::ProbedLink> links_;  // by worker index
  std::vector<std::pair<int, protocol::Probed>> probe_answers_;
  // Members::version() when they were registered, and when nothing was left to measure.
  std::uint64_t registered_version_ = 0, measured_version_ = 0;
  bool measured_all_ = false;                // of it also idle ranks of classes that have trained
  std::optional<SteadyTime> registered_at_;  // the last time
  bool learned_ = false;                     // an answer has come since the last register
};

// Merges the profiles of several device classes: the layers of the first one with the times of all.
// kInvalid if they do not describe the same layers.
Result<std::string> merge_profiles(const std::vector<std::string>& parts);

}  // namespace weir::coordinator
