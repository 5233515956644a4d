// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/nccl_communicator.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "worker/base/check.h"

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;
using Time = steady_clock::time_point;

// Each posted op gives one completion. If this many are unread, the engine is broken.
constexpr std::size_t kMostCompletions = 1U << 20U;
// Interval of polls of the GPU while something is under way: a tenth of the shortest message whose
// time is worth measuring.
constexpr std::chrono::microseconds kBusyPoll{50};
constexpr std::chrono::milliseconds kIdleWait{200};
constexpr std::chrono::seconds kFlushLimit{2};

std::size_t index_of(Channel channel) {
  return static_cast<std::size_t>(channel);
}

}  // namespace

void NcclCommunicator::Waker::wake() {
  const std::lock_guard lock(mutex_);
  source_.request_stop();
}

std::stop_token NcclCommunicator::Waker::next_wait() {
  const std::lock_guard lock(mutex_);
  if (source_.stop_requested()) source_ = {};
  return source_.get_token();
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclApi> api, LinksUp up, const Limits& limits)
    : api_(std::move(api)),
      limits_(limits),
      links_(std::move(up.links)),
      side_(std::move(up.side)),
      early_(std::move(up.early)),
      completions_(kMostCompletions) {
  std::vector<Watched*> watched;
  for (const auto& link : links_) {
    const std::size_t channel = index_of(link->end.channel);
    if (link->end.sending) {
      outgoing_[channel] = std::make_unique<OutgoingStream>(*link, *side_, limits_);
    } else {
      incoming_[channel] = std::make_unique<IncomingStream>(*link, *side_, limits_);
    }
    watched.push_back(link.get());
  }
  watchdog_.emplace(
      *api_, std::move(watched), limits_,
      Watchdog::Callbacks{
          .may_end = [this](std::size_t i) { return side_->peer_left(links_[i]->end); },
          .failed = [this](std::size_t i,
                           const std::string& reason) { note_failure(links_[i]->end, reason); },
          .ends =
              [this] {
                // The goodbye must be sent before the links end, so that the peer does not take the
                // end of its link for a failure.
                if (!failed_) side_.reset();
              }});
  driver_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "weir-nccl");
    drive(stop);
  });
}

NcclCommunicator::~NcclCommunicator() {
  if (!failed_) {
    ending_ = true;
    waker_.wake();
    const bool flushed = flushed_.pop(steady_clock::now() + kFlushLimit, {}).has_value();
    if (!flushed) fail({}, "ended while messages were on their way");
  }
  driver_.request_stop();
  waker_.wake();
  driver_.join();
  watchdog_->end();
  for (const auto& link : links_) link->log_times();
}

void NcclCommunicator::post(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) {
  WEIR_CHECK(bytes <= buffer.size(), "the buffer holds the message");
  const std::size_t channel = index_of(end.channel);
  WEIR_CHECK(end.sending ? outgoing_[channel] != nullptr : incoming_[channel] != nullptr,
             "a link end of this stage");
  if (failed_) return;
  std::unique_ptr<Mark> mark;
  if (buffer.on_device() && bytes > 0) mark = api_->mark();
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({end, std::move(buffer), bytes, std::move(mark)});
  }
  waker_.wake();
}

void NcclCommunicator::send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) {
  WEIR_CHECK(end.sending, "a sending link end");
  post(end, std::move(buffer), bytes);
}

void NcclCommunicator::receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) {
  WEIR_CHECK(!end.sending, "a receiving link end");
  post(end, std::move(buffer), bytes);
}

std::optional<Completion> NcclCommunicator::wait(Time deadline, std::stop_token stop) {
  if (failure_) return failure_;
  std::optional<Completion> completion = completions_.pop(deadline, std::move(stop));
  if (completion && completion->kind == Completion::Kind::kFailed) failure_ = completion;
  return completion;
}

bool NcclCommunicator::peer_left(const LinkEnd& end) const {
  return (end.sending ? outgoing_left_ : incoming_left_)[index_of(end.channel)];
}

// Labels and round trips come from the TCP side; transfers are counted here.
std::vector<LinkReport> NcclCommunicator::reports() const {
  std::vector<LinkReport> result = side_->reports();
  for (LinkReport& report : result) {
    const double rtt = report.counters.rtt_seconds;
    report.counters = outgoing_[index_of(report.channel)]->counters();
    report.counters.rtt_seconds = rtt;
    const auto sends = [&](const auto& link) {
      return link->end.sending && link->end.channel == report.channel;
    };
    const auto times = (*std::ranges::find_if(links_, sends))->comm->times();
    if (times) report.counters.nccl = times->sent;
  }
  return result;
}

void NcclCommunicator::note_failure(const LinkEnd& end, const std::string& reason) {
  if (failed_.exchange(true)) return;
  completions_.try_push({Completion::Kind::kFailed, end, 0, reason});
  side_->abort(reason);  // tells the peers, because NCCL does not always do so
  waker_.wake();
}

void NcclCommunicator::fail(const LinkEnd& end, const std::string& reason) {
  note_failure(end, reason);
  watchdog_->abort();
}

void NcclCommunicator::drive(const std::stop_token& stop) {
  for (const SideChannel::Arrived& arrived : std::exchange(early_, {})) {
    const Status handled = handle(arrived);
    if (!handled) return fail(arrived.end, handled.error().message);
  }
  while (!stop.stop_requested() && !failed_) {
    const std::stop_token wait = waker_.next_wait();
    const Result<bool> busy = work();
    if (!busy) return fail({}, busy.error().message);
    if (ending_ && side_->delivered()) flushed_.try_push(Unit{});
    const std::chrono::nanoseconds pause = *busy || ending_ ? kBusyPoll : kIdleWait;
    const Result<bool> waited = take_record(steady_clock::now() + pause, wait);
    if (!waited) return fail({}, waited.error().message);
  }
}

// Does everything that is possible now. Returns true if the GPU must be polled again soon.
Result<bool> NcclCommunicator::work() {
  std::vector<Posting> postings;
  {
    const std::lock_guard lock(inbox_mutex_);
    postings.swap(inbox_);
  }
  for (Posting& one : postings) {
    const std::size_t channel = index_of(one.end.channel);
    if (one.end.sending) {
      outgoing_[channel]->post(std::move(one.buffer), one.bytes, std::move(one.mark));
    } else {
      incoming_[channel]->post(std::move(one.buffer), one.bytes, std::move(one.mark));
    }
  }
  std::vector<bool> left;
  for (const auto& link : links_) left.push_back(side_->peer_left(link->end));
  // Records that a peer sent before its goodbye have arrived by now.
  for (bool more = true; more;) {
    WEIR_TRY(more, take_record({}, {}));
  }
  WEIR_TRY(const bool busy, progress());
  WEIR_OK(note_left(left));
  return busy;
}

Result<bool> NcclCommunicator::take_record(Time until, std::stop_token stop) {
  WEIR_TRY(const std::optional<SideChannel::Arrived> arrived, side_->wait(until, std::move(stop)));
  if (!arrived) return false;
  WEIR_OK(handle(*arrived));
  return true;
}

Status NcclCommunicator::handle(const SideChannel::Arrived& arrived) {
  const Record& record = arrived.record;
  const std::size_t channel = index_of(record.channel);
  const auto from_here = [&](const auto& link) {
    return link->end.channel == record.channel && link->end.peer_stage == arrived.end.peer_stage;
  };
  const auto link = std::ranges::find_if(links_, from_here);
  if (link == links_.end()) return invalid("a record of a link that does not exist");
  const bool sending = (*link)->end.sending;
  switch (record.type) {
    case RecordType::kAnnounce:
    case RecordType::kHost:
      if (sending) break;
      return incoming_[channel]->handle(record);
    case RecordType::kCredit:
    case RecordType::kTaken:
      if (!sending) break;
      return outgoing_[channel]->handle(record);
    case RecordType::kHello:
      break;
  }
  return (*link)->wrong("a record that its writer may not send");
}

Result<bool> NcclCommunicator::progress() {
  const Watchdog::Use use(*watchdog_);
  if (!use) return Error{Code::kCancelled, "aborted"};
  const Time now = steady_clock::now();
  bool busy = false;
  done_.clear();
  for (const auto& stream : outgoing_) {
    if (!stream) continue;
    WEIR_TRY(const bool more, stream->progress(now, done_));
    busy |= more;
  }
  for (const auto& stream : incoming_) {
    if (!stream) continue;
    WEIR_TRY(const bool more, stream->progress(now, done_));
    busy |= more;
  }
  for (Completion& completion : done_) {
    const bool room = completions_.try_push(std::move(completion));
    WEIR_CHECK(room, "the engine reads its completions");
  }
  return busy;
}

// left: by index of links_, taken before the records were read.
Status NcclCommunicator::note_left(const std::vector<bool>& left) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!left[i]) continue;
    const LinkEnd& end = links_[i]->end;
    const std::size_t channel = index_of(end.channel);
    if (end.sending) {
      if (outgoing_[channel]->owes()) return links_[i]->left_early();
      outgoing_left_[channel] = true;
    } else {
      if (incoming_[channel]->awaits()) return links_[i]->left_early();
      incoming_left_[channel] = true;
    }
  }
  return Unit{};
}

}  // namespace weir::transport::nccl
