// SPDX-License-Identifier: Apache-2.0
// When the flight recorders of all ranks are read: because a user wants to see steps, and by
// itself after a slow step, when no step comes any more, and when a rank is lost. Tells in one line
// what was found. No socket; time is an argument. Used only on the coordinator's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/step_records.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"
#include "worker/timeline/waits.h"

namespace weir::coordinator {

class Observer {
 public:
  struct Trace {  // for the user who has asked
    std::string id, octets;
    int ranks = 0, answers = 0;
  };
  struct Dump {
    std::int64_t step = 0;  // completed by all ranks
    std::string text;       // one line
    std::string octets;     // records (worker/timeline/codec.h)
    bool for_users = true;  // not so soon after the one before
  };
  struct Effects {
    Outgoing send;
    std::vector<Trace> traces;
    std::vector<Dump> dumps;
  };

  explicit Observer(std::int64_t total_steps) : total_steps_(total_steps) {}

  // The plan that the ranks train with; null: none. lost: replicas that do not train.
  void follow(const schedule::Plan* plan, int incarnation, const std::set<int>& lost);
  // An id that was asked for before, or too few steps so far: nothing is sent.
  Effects want_trace(const protocol::TraceWanted& wanted, const Members& members, SteadyTime now);
  // After Members::status.
  Effects on_status(const protocol::StageStatus& status, const Members& members, SteadyTime now);
  void on_steps(int index, const protocol::Steps& steps) { records_.on_steps(index, steps); }
  // A rank of the generation is lost. Send the effects before the others are told.
  Effects on_lost(const std::string& who, const Members& members, SteadyTime now);
  Effects tick(const Members& members, SteadyTime now);
  // A stall, for the report: who waits for whom while no step comes, as the ranks have told it, or
  // for whom a broken generation waits. Nothing: steps come, or have not begun, or all do what they
  // should.
  std::optional<protocol::Stall> stall(const Members& members, SteadyTime now) const;

  static constexpr std::chrono::seconds kLeastStall{30}, kPauseOfLosses{30};
  static constexpr std::chrono::minutes kPauseOfSlowSteps{10};
  // Between dumps for users. One of a stall is always for them, and the first of a loss.
  static constexpr std::chrono::minutes kPauseForUsers{10};

 private:
  struct Slow {
    std::int64_t step = 0;  // completed after it
    double seconds = 0, median = 0;
  };
  struct Asked {  // why a dump was asked for
    std::string text;
    std::int64_t step = 0;
    std::optional<double> stalled;  // for so many seconds; the chain of waits belongs to the text
    std::optional<std::uint32_t> slow;
  };
  void ask(const Asked& why, std::int64_t from, std::int64_t to, const Members& members,
           SteadyTime now, Effects& effects);
  void look_for_slow_step(const protocol::StageStatus& status, SteadyTime now);
  std::optional<double> median() const;
  std::string told(const Asked& why, const std::string& octets);
  std::optional<protocol::Stall> missing(const Members& members, SteadyTime now) const;

  const std::int64_t total_steps_;
  std::optional<schedule::Plan> plan_;
  int incarnation_ = 0;
  std::set<int> lost_;
  StepRecords records_;
  std::string traced_;                    // id of the last trace that was asked for
  std::deque<double> recent_;             // seconds of steps of one first stage
  double longest_ = 0;                    // of all steps and ranks of this generation
  std::optional<SteadyTime> moved_;       // the last STATUS of this generation
  std::optional<std::int64_t> complete_;  // steps on all ranks that train
  bool stalled_ = false;                  // told, and no STATUS since then
  std::optional<protocol::Stall> stall_;  // what the ranks have told of it
  std::optional<schedule::Plan> broken_;  // the plan that trained last, while none does
  std::optional<SteadyTime> stands_;      // the last STATUS of any generation
  std::optional<Slow> slow_;              // its dump waits for the step behind it
  std::optional<SteadyTime> last_slow_, last_loss_, last_for_users_;
  bool users_have_loss_ = false;        // the last one was no slow step
  std::map<std::string, Asked> asked_;  // by id
  int dumps_ = 0;
};

}  // namespace weir::coordinator
