// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/step_world.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/base/check.h"
#include "worker/schedule/caps.h"

namespace weir::sim {
namespace {

using protocol::StepPart;

constexpr double kMostOffset = 5, kDrift = 5e-5;  // of clocks, seconds and part
constexpr double kLoad = 1e-4;                    // seconds, to load tokens of a micro-batch
constexpr double kInOnePiece = 5e-5;              // seconds: a shorter message is not timed

}  // namespace

StepWorld::StepWorld(const schedule::Plan& plan, StepShape shape, std::uint64_t seed)
    : plan_(plan),
      shape_(std::move(shape)),
      seed_(seed),
      stages_(plan.stage_count()),
      replicas_(plan.replica_count()),
      ranks_(plan.ranks.size()) {
  for (int s = 0; s < stages_; ++s) {
    orders_.push_back(schedule::order_of(plan.schedule, stages_, s, plan.micro_batches[0]));
  }
  for (int r = 0; r < replicas_; ++r) {
    WEIR_CHECK(plan.micro_batches[static_cast<std::size_t>(r)] == plan.micro_batches[0],
               "equal shares");
    for (int s = 0; s < stages_; ++s) {
      Random random = chance("clock", r, s);
      Rank& rank = at(r, s);
      rank.offset = kMostOffset * (2 * random.uniform() - 1);
      rank.rate = 1 + kDrift * (2 * random.uniform() - 1);
      rank.pauses = chance("pauses", r, s);
    }
  }
}

Random StepWorld::chance(std::string_view what, int replica, int stage) const {
  const auto place = static_cast<std::uint64_t>(step_ * std::ssize(ranks_)) + index(replica, stage);
  return Random(mix_seed(mix_seed(seed_, what), place));
}

const Fault* StepWorld::fault(FaultKind kind, int replica, int stage) const {
  const auto found = std::ranges::find_if(faults_, [&](const Fault& one) {
    return one.kind == kind && one.replica == replica && one.stage == stage;
  });
  return found == faults_.end() ? nullptr : &*found;
}

double StepWorld::factor(FaultKind kind, int replica, int stage) const {
  const Fault* planted = fault(kind, replica, stage);
  return planted == nullptr ? 1 : planted->size;
}

void StepWorld::book(Rank& rank, StepPart part, double begin, double end) {
  if (end <= begin) return;
  const double from = rank.offset + rank.rate * begin, to = rank.offset + rank.rate * end;
  rank.parts.seconds[static_cast<std::size_t>(part)] += to - from;
}

void StepWorld::book_wait(Rank& rank, StepPart late, StepPart link, const Message& message,
                          double begin, double end) {
  const double begins = std::clamp(message.begin, begin, end);
  const double ends = std::clamp(message.last, begins, end);
  book(rank, late, begin, begins);
  book(rank, link, begins, ends);
  book(rank, StepPart::kOther, ends, end);
}

StepWorld::Span StepWorld::run(int replica, int stage, double ready, double seconds) {
  Rank& rank = at(replica, stage);
  const Fault* pauses = fault(FaultKind::kPauses, replica, stage);
  Span span{std::max(rank.free, ready), 0};
  if (pauses == nullptr) return {span.begin, span.begin + seconds};
  const auto go_on = [&] {
    const double ends = rank.next_pause + pauses->size;
    rank.next_pause = ends + rank.pauses.exponential(pauses->every);
    return ends;
  };
  while (rank.next_pause < span.begin) span.begin = std::max(span.begin, go_on());
  span.end = span.begin + seconds;
  while (rank.next_pause < span.end) {
    span.end += pauses->size;
    go_on();
  }
  return span;
}

// All ranks copy their state between two steps.
void StepWorld::save() {
  for (int r = 0; r < replicas_; ++r) {
    for (int s = 0; s < stages_; ++s) {
      Rank& rank = at(r, s);
      const Fault* slow = fault(FaultKind::kSave, r, s);
      const double seconds = shape_.save * std::exp(shape_.jitter * chance("save", r, s).normal()) +
                             (slow != nullptr ? slow->size : 0);
      book(rank, StepPart::kSave, rank.free, rank.free + seconds);
      rank.free += seconds;
    }
  }
}

// The header goes from stage to stage; each grants its slots then.
void StepWorld::begin(int replica) {
  const schedule::Credits credits = schedule::credits_of(plan_.schedule);
  noise_.assign(static_cast<std::size_t>(stages_), {});
  double header = 0;
  for (int s = 0; s < stages_; ++s) {
    Rank& rank = at(replica, s);
    const double begins = std::max(rank.free, header);
    book(rank, StepPart::kForwardLate, rank.free, begins);
    rank.begun = rank.free = begins;
    header = begins + shape_.latency;
    Random random = chance("ops", replica, s);
    for (std::size_t i = 0; i < orders_.front().size(); ++i) {
      noise_[static_cast<std::size_t>(s)].push_back(std::exp(shape_.jitter * random.normal()));
    }
  }
  for (const bool forward : {true, false}) {
    auto& links = links_[forward ? 0 : 1];
    links.assign(static_cast<std::size_t>(stages_ - 1), {});
    for (int b = 0; b + 1 < stages_; ++b) {
      Link& link = links[static_cast<std::size_t>(b)];
      const Fault* few = forward ? fault(FaultKind::kCredits, replica, b) : nullptr;
      link.slots = static_cast<std::size_t>(few != nullptr ? few->size
                                            : forward      ? credits.receive_forward
                                                           : credits.receive_backward);
      const auto at_usual =
          shape_.links[forward ? 0 : 1][static_cast<std::size_t>(replica * (stages_ - 1) + b)];
      const double seconds =
          at_usual *
          factor(forward ? FaultKind::kForwardLink : FaultKind::kBackwardLink, replica, b);
      Random random = chance(forward ? "there" : "back", replica, b);
      link.messages.resize(static_cast<std::size_t>(plan_.micro_batches[0]));
      for (Message& message : link.messages) {
        message.seconds = seconds * std::exp(shape_.jitter * random.normal());
      }
    }
  }
}

std::optional<double> StepWorld::leaves(int replica, int boundary, bool forward) {
  const Link& own = link(forward, boundary);
  if (own.sent == own.messages.size()) return std::nullopt;
  const Message& message = own.messages[own.sent];
  if (message.handed < 0) return std::nullopt;
  double credit = at(replica, forward ? boundary + 1 : boundary).begun;
  if (own.sent >= own.slots) {
    credit = own.messages[own.sent - own.slots].consumed;
    if (credit < 0) return std::nullopt;
  }
  return std::max({message.handed, own.free, credit + shape_.latency});
}

void StepWorld::carry(Link& link, double leaves) const {
  Message& message = link.messages[link.sent++];
  link.free = leaves + message.seconds;
  message.begin = leaves + shape_.latency;
  message.last = link.free + shape_.latency;
}

std::optional<StepWorld::Next> StepWorld::ready(int replica, int stage, bool forward) {
  const Rank& rank = at(replica, stage);
  const int m = rank.done[forward ? 0 : 1];
  const auto micro_batch = static_cast<std::size_t>(m);
  Next next{.forward = forward, .start = 0, .input = rank.free, .room = rank.free};
  if (m == plan_.micro_batches[0]) return std::nullopt;
  if (!forward && m >= rank.done[0]) return std::nullopt;
  const bool receives = forward ? stage > 0 : stage + 1 < stages_;
  const bool sends = forward ? stage + 1 < stages_ : stage > 0;
  if (receives) {
    next.in = &link(forward, forward ? stage - 1 : stage).messages[micro_batch];
    if (next.in->last < 0) return std::nullopt;
    next.input = std::max(next.input, next.in->last);
  }
  const auto window = static_cast<std::size_t>(schedule::credits_of(plan_.schedule).send_window);
  if (sends) {
    auto& messages = link(forward, forward ? stage : stage - 1).messages;
    next.out = &messages[micro_batch];
    if (micro_batch >= window) {
      next.opening = &messages[micro_batch - window];
      if (next.opening->last < 0) return std::nullopt;
      next.room = std::max(next.room, next.opening->last + shape_.latency);
    }
  }
  next.start = std::max(next.input, next.room);
  return next;
}

std::optional<StepWorld::Next> StepWorld::next_op(int replica, int stage) {
  const Rank& rank = at(replica, stage);
  const auto s = static_cast<std::size_t>(stage);
  if (plan_.schedule.dispatch == schedule::Dispatch::kStrict) {
    const auto done = static_cast<std::size_t>(rank.done[0] + rank.done[1]);
    if (done == orders_[s].size()) return std::nullopt;
    return ready(replica, stage, orders_[s][done].kind == schedule::OpKind::kForward);
  }
  const bool room = rank.done[0] - rank.done[1] < plan_.schedule.caps[s];
  auto forward = room ? ready(replica, stage, true) : std::nullopt;
  const auto backward = ready(replica, stage, false);
  if (!forward || (backward && backward->start < forward->start)) return backward;
  return forward;
}

void StepWorld::run_op(int replica, int stage, const Next& next) {
  Rank& rank = at(replica, stage);
  const bool forward = next.forward;
  const int kind = forward ? 0 : 1, m = rank.done[static_cast<std::size_t>(kind)]++;
  const bool loads = forward && (stage == 0 || stage + 1 == stages_);
  const Fault* slow = forward ? fault(FaultKind::kData, replica, stage) : nullptr;
  const double data = (loads ? kLoad : 0) + (slow != nullptr ? slow->size : 0);
  const double own =
      (forward ? shape_.forward : shape_.backward)[index(replica, stage)] *
      factor(FaultKind::kDevice, replica, stage) *
      noise_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(2 * m + kind)];
  const Span span = run(replica, stage, next.start, data + own);
  rank.op_seconds[static_cast<std::size_t>(kind)].push_back(span.end - span.begin - data);
  if (next.input > rank.free) {
    book_wait(rank, forward ? StepPart::kForwardLate : StepPart::kGradientLate,
              forward ? StepPart::kForwardLink : StepPart::kGradientLink, *next.in, rank.free,
              next.input);
  }
  if (next.room > next.input) {
    book_wait(rank, StepPart::kFullPeer, StepPart::kFullLink, *next.opening, next.input, next.room);
  }
  book(rank, StepPart::kOther, next.start, span.begin);
  book(rank, StepPart::kData, span.begin, span.begin + data);
  book(rank, forward ? StepPart::kForward : StepPart::kBackward, span.begin + data, span.end);
  rank.ops[static_cast<std::size_t>(kind)] += rank.rate * (span.end - span.begin);
  rank.free = span.end;
  if (!forward) rank.last_backward = span;
  if (next.in != nullptr) next.in->consumed = span.end;
  if (next.out != nullptr) next.out->handed = span.end;
}

// What begins first comes first, so that a rank that may choose knows what is there.
void StepWorld::run_ops(int replica) {
  begin(replica);
  for (;;) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    double first = kNever;
    int stage = 0;
    std::optional<Next> op;
    Link* free = nullptr;
    for (int s = 0; s < stages_; ++s) {
      const auto next = next_op(replica, s);
      if (next && next->start < first) {
        first = next->start;
        stage = s;
        op = next;
      }
    }
    for (int b = 0; b + 1 < stages_; ++b) {
      for (const bool forward : {true, false}) {
        const auto when = leaves(replica, b, forward);
        if (!when || *when > first) continue;
        first = *when;
        free = &link(forward, b);
      }
    }
    if (first == kNever) break;
    if (free != nullptr) {
      carry(*free, first);
    } else {
      run_op(replica, stage, *op);
    }
  }
  for (int s = 0; s < stages_; ++s) {
    WEIR_CHECK(at(replica, s).done[1] == plan_.micro_batches[0], "the step ends");
    tell_sent(replica, s);
  }
}

void StepWorld::tell_sent(int replica, int stage) {
  Rank& rank = at(replica, stage);
  for (const bool forward : {true, false}) {
    const int boundary = forward ? stage : stage - 1;
    if (boundary < 0 || boundary + 1 >= stages_) continue;
    const Link& own = link(forward, boundary);
    protocol::Sent sent{.forward = forward, .transfers = std::ssize(own.messages) + 1};
    sent.rtt_seconds = 2 * shape_.latency;
    const double clock = at(replica, forward ? stage + 1 : stage - 1).rate;  // of the receiver
    for (const Message& message : own.messages) {
      if (message.seconds < kInOnePiece) continue;
      ++sent.timed;
      sent.seconds += clock * message.seconds;
    }
    rank.sent.push_back(sent);
  }
}

// Layers set out one after the other, the last one first, each when all replicas have its
// gradients.
double StepWorld::end_of_sums(int stage) const {
  double slowest = 1;
  for (int r = 0; r < replicas_; ++r) {
    slowest = std::max(slowest, factor(FaultKind::kSums, r, stage));
  }
  const double whole = replicas_ > 1 ? shape_.sums[static_cast<std::size_t>(stage)] : 0;
  const double noise = std::exp(shape_.jitter * chance("sums", 0, stage).normal());
  const int layers = shape_.layers.empty() ? 1 : shape_.layers[static_cast<std::size_t>(stage)];
  double end = 0;
  for (int layer = layers - 1; layer >= 0; --layer) {
    for (int r = 0; r < replicas_; ++r) {
      const Span& backward = at(r, stage).last_backward;
      const double missing = (backward.end - backward.begin) * layer / layers;
      end = std::max(end, backward.end - missing);
    }
    end += whole * slowest * noise / layers;
  }
  return end;
}

// Sums, the notes of the later stages, the verdict of the first one, the optimizer.
void StepWorld::update(int replica, const std::vector<double>& sums_end) {
  double note = 0;
  std::vector<double> ready(static_cast<std::size_t>(stages_));
  for (int s = stages_ - 1; s >= 0; --s) {
    Rank& rank = at(replica, s);
    const double summed = replicas_ > 1 ? sums_end[static_cast<std::size_t>(s)] : rank.free;
    book(rank, StepPart::kSum, rank.free, summed);
    const double known = std::max(summed, note);
    book(rank, StepPart::kNote, summed, known);
    ready[static_cast<std::size_t>(s)] = known;
    note = known + shape_.latency;
  }
  double verdict = ready.front();
  for (int s = 0; s < stages_; ++s) {
    Rank& rank = at(replica, s);
    book(rank, StepPart::kVerdict, ready[static_cast<std::size_t>(s)], verdict);
    rank.free = verdict;
    const Span span = run(replica, s, verdict, shape_.optimizer);
    book(rank, StepPart::kOther, verdict, span.begin);
    book(rank, StepPart::kOptimizer, span.begin, span.end);
    rank.free = span.end;
    verdict += shape_.latency;
  }
}

// Workers tell what an op took beyond 1.5 of the median as a pause.
void StepWorld::tell_pauses(Rank& rank) {
  constexpr double kOutlier = 1.5;
  for (const int kind : {0, 1}) {
    auto& all = rank.op_seconds[static_cast<std::size_t>(kind)];
    auto sorted = all;
    std::ranges::sort(sorted);
    const double usual = sorted[sorted.size() / 2];
    for (const double seconds : all) {
      if (seconds <= kOutlier * usual) continue;
      const auto part =
          static_cast<std::size_t>(kind == 0 ? StepPart::kForward : StepPart::kBackward);
      const double paused = rank.rate * (seconds - usual);
      rank.parts.seconds[part] -= paused;
      rank.parts.seconds[static_cast<std::size_t>(StepPart::kOther)] += paused;
    }
    all.clear();
  }
}

std::vector<protocol::StageStatus> StepWorld::step() {
  const bool saves = save_due();
  std::vector<double> before, after;
  for (Rank& rank : ranks_) {
    before.push_back(rank.free);
    rank.parts = {};
    rank.ops = {};
    rank.done = {};
    rank.sent.clear();
  }
  for (int r = 0; r < replicas_; ++r) run_ops(r);
  std::vector<double> sums_end;
  for (int s = 0; s < stages_; ++s) sums_end.push_back(end_of_sums(s));
  for (int r = 0; r < replicas_; ++r) update(r, sums_end);
  for (Rank& rank : ranks_) tell_pauses(rank);
  ++step_;
  for (const Rank& rank : ranks_) after.push_back(rank.free);
  if (save_due()) save();
  std::vector<protocol::StageStatus> told;
  for (int r = 0; r < replicas_; ++r) {
    for (int s = 0; s < stages_; ++s) {
      const Rank& rank = at(r, s);
      told.push_back({.epoch = plan_.revision,
                      .step = step_,
                      .replica = r,
                      .stage = s,
                      .step_seconds = rank.rate * (after[index(r, s)] - before[index(r, s)]),
                      .forward_seconds = rank.ops[0],
                      .backward_seconds = rank.ops[1],
                      .interrupted = saves,
                      .parts = rank.parts,
                      .sent = rank.sent});
    }
  }
  return told;
}

}  // namespace weir::sim
