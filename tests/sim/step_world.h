// SPDX-License-Identifier: Apache-2.0
// Steps of a job as events: ops, messages with credits, exact sums, notes and verdicts, saves,
// pauses, each rank with a clock of its own. It shares no code with the simulator of schedules, so
// that what the operator says of a step can be checked against another opinion. It tells what
// workers tell: STATUS of all ranks. Its truth is the same world without the fault: all chance is
// drawn by step, rank and op, whatever happened before.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/base/random.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/dispatch.h"
#include "worker/schedule/plan.h"

namespace weir::sim {

// By replica and stage; links by replica, boundary and direction. Seconds of one micro-batch.
struct StepShape {
  double jitter = 0.02;  // lognormal, of each op and message
  std::vector<double> forward, backward;
  std::array<std::vector<double>, 2> links;  // forward, backward
  double latency = 1e-4;
  std::vector<double> sums;  // by stage; of all its replicas
  // Equal ones by stage, empty: one each. The sum of a layer begins when its gradients are there.
  std::vector<int> layers = {};
  double optimizer = 0.005;
  double save = 0.02;  // copying the state, in the middle between two steps that save_every divides
  int save_every = 10;
};

enum class FaultKind : unsigned char {
  kDevice,
  kForwardLink,
  kBackwardLink,
  kData,
  kSave,
  kSums,
  kPauses,
  kCredits
};
struct Fault {
  FaultKind kind = FaultKind::kDevice;
  int replica = 0, stage = 0;  // a link: the stage before it
  // Device, links, sums: factor on the time. Data: seconds a forward. Save, pauses: seconds of one.
  // Credits: receive slots of the stage behind that link, forward.
  double size = 1;
  double every = 0;  // pauses: mean seconds between two
};

class StepWorld {
 public:
  StepWorld(const schedule::Plan& plan, StepShape shape, std::uint64_t seed);
  void plant(const Fault& fault) { faults_.push_back(fault); }

  // STATUS of all ranks after the next step.
  std::vector<protocol::StageStatus> step();
  // Seconds since the start, when the first stage ended the newest step.
  double time() const { return at(0, 0).free; }

 private:
  struct Span {
    double begin = 0, end = 0;
  };
  struct Rank {
    double free = 0;              // end of what it did last
    double begun = 0;             // of its ops of the step under way
    double offset = 0, rate = 1;  // of its clock
    double next_pause = 0;
    Random pauses{0};
    protocol::PartSeconds parts;  // of the step under way
    std::array<double, 2> ops{};  // seconds of forwards, of backwards
    std::array<int, 2> done{};    // forwards, backwards
    std::array<std::vector<double>, 2> op_seconds;
    Span last_backward;
    std::vector<protocol::Sent> sent;
  };
  struct Message {
    double handed = -1, begin = -1, last = -1;  // < 0: not yet
    double consumed = -1;                       // end of the op that has taken it
    double seconds = 0;                         // alone on the link
  };
  struct Link {  // of the step under way
    std::vector<Message> messages;
    std::size_t slots = 0, sent = 0;
    double free = 0;
  };
  // The op that a rank runs next, as far as that is known: all that begins earlier has begun.
  struct Next {
    bool forward = true;
    double start = 0;
    double input = 0, room = 0;  // when each is there, or the rank is free
    Message *in = nullptr, *out = nullptr;
    const Message* opening = nullptr;  // whose acknowledgement makes room
  };

  const Rank& at(int replica, int stage) const { return ranks_[index(replica, stage)]; }
  Rank& at(int replica, int stage) { return ranks_[index(replica, stage)]; }
  std::size_t index(int replica, int stage) const {
    return static_cast<std::size_t>(replica * stages_ + stage);
  }
  const Fault* fault(FaultKind kind, int replica, int stage) const;
  double factor(FaultKind kind, int replica, int stage) const;
  Random chance(std::string_view what, int replica, int stage) const;
  static void book(Rank& rank, protocol::StepPart part, double begin, double end);
  // Books the wait for a message, until it begins to come, until it is there.
  static void book_wait(Rank& rank, protocol::StepPart late, protocol::StepPart link,
                        const Message& message, double begin, double end);
  // Starts when the rank is free and `ready`; pauses come in between.
  Span run(int replica, int stage, double ready, double seconds);
  // Ranks tell a copy with the step before, and the interruption with the next one.
  bool save_due() const { return step_ % shape_.save_every == shape_.save_every / 2; }
  void save();
  double end_of_sums(int stage) const;
  void begin(int replica);
  void run_ops(int replica);
  std::optional<Next> ready(int replica, int stage, bool forward);
  std::optional<Next> next_op(int replica, int stage);
  void run_op(int replica, int stage, const Next& next);
  Link& link(bool forward, int boundary) {
    return links_[forward ? 0 : 1][static_cast<std::size_t>(boundary)];
  }
  // When the next message of a link leaves; nothing: that is not known yet.
  std::optional<double> leaves(int replica, int boundary, bool forward);
  void carry(Link& link, double leaves) const;
  static void tell_pauses(Rank& rank);
  void tell_sent(int replica, int stage);
  void update(int replica, const std::vector<double>& sums_end);

  const schedule::Plan plan_;
  const StepShape shape_;
  const std::uint64_t seed_;
  const int stages_, replicas_;
  std::vector<schedule::Order> orders_;  // by stage
  std::vector<Fault> faults_;
  std::vector<Rank> ranks_;
  std::int64_t step_ = 0;                   // completed ones
  std::array<std::vector<Link>, 2> links_;  // of one replica in the step under way, by boundary
  std::vector<std::vector<double>> noise_;  // of its ops, by stage
};

}  // namespace weir::sim
