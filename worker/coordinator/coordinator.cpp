// SPDX-License-Identifier: Apache-2.0
// Connects the state machines (members, startup, plan_switch, sync_rounds, report) with the sockets
// of port 7070 and with the source of plans. Everything runs on the control server's thread.
#include "worker/coordinator/coordinator.h"

#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/utf8.h"
#include "worker/control/link.h"
#include "worker/coordinator/cover.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/observer.h"
#include "worker/coordinator/plan_switch.h"
#include "worker/coordinator/report.h"
#include "worker/coordinator/save_rounds.h"
#include "worker/coordinator/snapshot_rounds.h"
#include "worker/coordinator/startup.h"
#include "worker/coordinator/sync_rounds.h"
#include "worker/protocol/codec.h"
#include "worker/timeline/codec.h"

namespace weir::coordinator {
namespace {

constexpr char kComponent[] = "coordinator";

const char* name(protocol::Outcome outcome) {
  switch (outcome) {
    case protocol::Outcome::kApplied:
      return "Applied";
    case protocol::Outcome::kRefused:
      return "Refused";
    case protocol::Outcome::kAborted:
      return "Aborted";
  }
  return "?";
}

class JobCoordinator final : public Coordinator {
 public:
  JobCoordinator(const Options& options, std::unique_ptr<PlanSource> source,
                 std::function<void(std::string)> on_gone, const Clock& clock)
      : options_(options),
        clock_(clock),
        source_(std::move(source)),
        on_gone_(std::move(on_gone)),
        startup_(options),
        switch_(options.job_uid, options.model.layers > 0 ? options.model.layers : -1,
                options.total_steps, options.progress_deadline, options.term, options.lost_pod_uid),
        saves_(options.checkpoints, options.total_steps, options.model.layers),
        snapshots_(options.snapshots, options.total_steps),
        rounds_(options.total_steps),
        observer_(options.total_steps),
        reporter_(options.job_uid, options.total_steps,
                  std::chrono::duration_cast<std::chrono::milliseconds>(
                      clock_.system_now().time_since_epoch())
                      .count()) {
    note_checkpoint();
  }

  ~JobCoordinator() override {
    if (!server_) return;
    std::promise<void> done;  // afterwards the server's thread does not call the source
    server_->post([&] {
      stopping_ = true;
      done.set_value();
    });
    done.get_future().wait();
    for (const std::weak_ptr<int> life = std::exchange(life_, nullptr); !life.expired();) {
      std::this_thread::yield();  // an answer that is just arriving may still post
    }
    source_.reset();
    server_.reset();
  }

  template <class MakeServer>
  Status start(std::string job_key, const MakeServer& make_server) {
    auto server =
        make_server({.listen_ip = options_.listen_ip,
                     .port = options_.port,
                     .job_uid = options_.job_uid,
                     .job_key = std::move(job_key),
                     .dead_after = options_.dead_after},
                    {.on_message = [this](auto session, const auto& peer,
                                          auto message) { on_message(session, peer, message); },
                     .on_closed = [this](auto session, const auto& why,
                                         auto unheard) { on_closed(session, why, unheard); },
                     .on_tick = [this] { advance(); }});
    if (!server) return server.error();
    server_ = *std::move(server);
    server_->start();
    source_->start(
        {.on_plan = [this](schedule::Plan plan) { later(&JobCoordinator::on_plan, plan); },
         .on_register_wanted = [this] { later(&JobCoordinator::register_again); },
         .on_gone = [this](std::string why) { on_gone_(std::move(why)); },
         .on_bad_plan =
             [this](std::uint32_t revision, const std::string& reason) {
               later(&JobCoordinator::on_bad_plan, revision, reason);
             },
         .on_trace_wanted =
             [this](const protocol::TraceWanted& wanted) {
               later(&JobCoordinator::on_trace_wanted, wanted);
             },
         .on_moved = options_.on_moved});
    return Unit{};
  }

  int port() const override { return server_->port(); }
  bool in_touch() const override { return source_->in_touch(); }

  void finish(std::chrono::steady_clock::time_point deadline) override {
    auto done = std::make_shared<std::promise<void>>();
    auto future = done->get_future();
    server_->post([this, done] {
      finishing_ = done;
      check_finished();
    });
    static_cast<void>(future.wait_until(deadline));
    report_last([this] { finishing_.reset(); }, deadline);
  }

  void exported(const protocol::Exported& what,
                std::chrono::steady_clock::time_point deadline) override {
    report_last([&] { exported_ = what; }, deadline);
  }

 private:
  template <class Method, class... Arguments>
  void later(Method method, Arguments... arguments) {
    server_->post([this, method, arguments...] { (this->*method)(arguments...); });
  }

  // Sends a report of what `change` has changed on the server's thread.
  void report_last(const std::function<void()>& change,
                   std::chrono::steady_clock::time_point deadline) {
    std::promise<void> reported;
    server_->post([&] {
      change();
      send_report();
      reported.set_value();
    });
    reported.get_future().wait();
    source_->flush(deadline);
  }

  // ---- events ----
  void on_message(control::SessionId session, const control::PeerId& peer,
                  const protocol::Message& message) {
    if (stopping_) return;
    if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
      return on_hello(session, peer, *hello);
    }
    const auto index = members_.index_of(session);
    if (!index) return server_->close(session, "HELLO expected");
    if (const auto* status = std::get_if<protocol::StageStatus>(&message)) {
      members_.status(*index, *status);
      reporter_.on_status(*index, *status);
      saves_.on_status(*status);
      rounds_.on_status(*status, clock_.now());
      act(observer_.on_status(*status, members_, clock_.now()));
      tell_validation(status->validation);
      if (options_.on_step) {
        for (const StepTotal& total : totals_.on_status(*status)) options_.on_step(total);
      }
    } else if (const auto* done = std::get_if<protocol::SyncReady>(&message)) {
      return act(rounds_.on_ready(*index, *done, members_, clock_.now()));
    } else if (const auto* failed = std::get_if<protocol::RoundFailed>(&message)) {
      return act(rounds_.on_failed(*index, *failed, members_, clock_.now()));
    } else if (const auto* measured = std::get_if<protocol::Measured>(&message)) {
      startup_.measured(*index, *measured);
    } else if (const auto* probed = std::get_if<protocol::Probed>(&message)) {
      startup_.probed(*index, *probed);
    } else if (const auto* leave = std::get_if<protocol::Leave>(&message)) {
      log_info(kComponent, "member leaves", {{"worker", *index}, {"reason", leave->reason}});
      members_.leave(*index, leave->reason);
      tell_validation(leave->validation);
      check_finished();
      tell_idle();
    } else if (const auto* inventory = std::get_if<protocol::Inventory>(&message)) {
      members_.inventory(*index, *inventory);
    } else if (const auto* ready = std::get_if<protocol::ReadyState>(&message)) {
      members_.ready_state(*index, *ready);
    } else if (const auto* saved = std::get_if<protocol::Saved>(&message)) {
      if (saved->snapshot) {
        act(snapshots_.on_saved(*index, *saved, members_));
      } else {
        act(saves_.on_saved(*index, *saved, training(), members_, clock_.now()));
      }
    } else if (const auto* steps = std::get_if<protocol::Steps>(&message)) {
      observer_.on_steps(*index, *steps);
    } else if (const auto* lost = std::get_if<protocol::PeerLost>(&message)) {
      act(observer_.on_lost("stage " + std::to_string(lost->stage) + " of replica " +
                                std::to_string(lost->replica) + " (" + lost->reason + ")",
                            members_, clock_.now()));
    } else if (const auto* bad = std::get_if<protocol::BadCheckpoint>(&message)) {
      act(saves_.on_bad(*index, *bad));
    }
    act(switch_.on_message(*index, message, members_, clock_.now()));
    advance();
  }

  void tell_validation(const std::optional<protocol::Validation>& validation) {
    if (!validation) return;
    validation_ = validation;
    if (options_.on_validation) options_.on_validation(*validation);
  }

  void on_hello(control::SessionId session, const control::PeerId& peer,
                const protocol::Hello& hello) {
    const std::string refusal =
        members_.index_of(session) ? "a second HELLO" : members_.refusal(peer, hello);
    if (!refusal.empty()) return server_->close(session, refusal);
    const std::string other = Members::disagreement(options_.settings, hello);
    if (!other.empty()) {
      log_error(kComponent, "member refused", {{"pod", hello.member.pod}, {"reason", other}});
      server_->send(session, protocol::Refused{.reason = other});
      return server_->close(session, other);
    }
    const auto* before = members_.find(hello.member.worker_index);
    if (before != nullptr && before->connected()) {  // its old session is at best half open
      const auto old = before->session;
      lose(old, "replaced by a new session");
      server_->close(old, "replaced by a new session");
    }
    members_.hello(session, hello, clock_.now());
    log_info(kComponent, "member came",
             {{"worker", hello.member.worker_index},
              {"pod", hello.member.pod},
              {"members", members_.all().size()}});
    advance();
  }

  // Whatever ends the session of a machine that is gone: its heartbeats came each second before.
  void on_closed(control::SessionId session, const std::string& reason,
                 std::chrono::nanoseconds unheard) {
    if (stopping_) return;
    const bool silent = unheard >= options_.dead_after / 2;
    lose(session, reason, silent ? std::optional(clock_.now() - unheard) : std::nullopt);
  }

  void lose(control::SessionId session, const std::string& reason,
            std::optional<SteadyTime> silent_since = std::nullopt) {
    const auto index = members_.closed(session, silent_since);
    if (!index) return;
    next_report_ = {};  // the operator may have another worker for its place
    startup_.lost(*index);
    check_finished();
    const auto* state = members_.find(*index);
    if (state->finished) return;
    log_warn(kComponent, "member lost",
             {{"worker", *index}, {"pod", state->member.pod}, {"reason", reason}});
    act(observer_.on_lost(state->member.pod + " (" + reason + ")", members_, clock_.now()));
    act(switch_.on_lost(*index, reason, members_, clock_.now()));
  }

  void on_plan(const schedule::Plan& plan) {
    if (stopping_) return;
    log_info(kComponent, "plan received",
             {{"revision", plan.revision}, {"trigger", schedule::name(plan.trigger)}});
    act(switch_.on_plan(plan, members_, clock_.now()));
    source_->have(switch_.highest_seen());
  }

  void on_bad_plan(std::uint32_t revision, const std::string& reason) {
    if (stopping_) return;
    Effects effects;
    effects.finished.push_back(
        {.revision = revision, .outcome = protocol::Outcome::kRefused, .reason = reason});
    act(effects);
  }

  void on_trace_wanted(const protocol::TraceWanted& wanted) {
    if (stopping_) return;
    act(observer_.want_trace(wanted, members_, clock_.now()));
    advance();
  }

  void register_again() {
    startup_.register_again();
    advance();
  }

  bool note_checkpoint() {
    const Checkpoint newest = saves_.newest_checkpoint();
    return switch_.set_checkpoint(newest.step, newest.compressed_steps);
  }

  // ---- acting ----
  void advance() {
    if (stopping_) return;
    const auto now = clock_.now();
    auto step = startup_.advance(members_, now);
    for (const auto& warning : step.warnings) log_warn(kComponent, warning);
    send(step.send);
    if (step.register_now) {
      registered_ = true;
      log_info(kComponent, "register", {{"members", step.register_now->members.size()}});
      step.register_now->last_checkpoint_step = saves_.newest();
      source_->register_members(*std::move(step.register_now));
    }
    act(switch_.tick(members_, now));
    act(saves_.advance(training(), members_, now));
    act(snapshots_.advance(switch_.training(), members_, now));
    act(rounds_.tick(members_, now));
    act(observer_.tick(members_, now));
    if (registered_ && now >= next_report_) send_report();
  }

  void act(const Effects& effects) {
    for (const auto& note : effects.notes) log_info(kComponent, note);
    send(effects.send);
    rounds_.follow(switch_.training());
    // A segment describes the plan with all of its replicas.
    reporter_.follow(switch_.covered().empty() ? switch_.training() : nullptr,
                     switch_.incarnation());
    observer_.follow(switch_.training(), switch_.incarnation(), switch_.lost());
    if (options_.on_step) {
      totals_.follow(switch_.training(), switch_.incarnation(), switch_.lost());
    }
    if (switch_.lost() != lost_) {
      lost_ = switch_.lost();
      reporter_.forget_rates();
      act(rounds_.without(lost_, members_, clock_.now()));
    }
    for (const auto& finished : effects.finished) {
      const bool good = finished.outcome == protocol::Outcome::kApplied;
      log(good ? LogLevel::kInfo : LogLevel::kWarn, kComponent, "plan switch",
          {{"revision", finished.revision},
           {"outcome", name(finished.outcome)},
           {"step", finished.step},
           {"pause_seconds", finished.pause_seconds},
           {"moved_bytes", finished.moved_bytes},
           {"reason", finished.reason}});
      if (good) reporter_.forget_rates();
      last_switch_ = finished;
      send_report();
    }
  }

  void act(const SyncRounds::Effects& effects) {
    for (const auto& warning : effects.warnings) log_warn(kComponent, warning);
    send(effects.send);
    if (const auto timer = rounds_.timer()) server_->wake_at(*timer);
  }

  SaveRounds::Training training() const {
    return {switch_.training(), switch_.incarnation(), rounds_.reached(), switch_.lost(),
            &switch_.compressed()};
  }

  void act(const SaveRounds::Effects& effects) {
    for (const auto& note : effects.notes) log_info(kComponent, note);
    for (const auto& warning : effects.warnings) log_warn(kComponent, warning);
    send(effects.send);
    if (note_checkpoint()) send_report();
    if (!effects.unusable.empty()) options_.checkpoints.unusable(effects.unusable);
    if (effects.remove) {
      options_.checkpoints.remove(*effects.remove, [life = std::weak_ptr(life_), this] {
        const auto alive = life.lock();
        if (alive) later(&JobCoordinator::on_removed);
      });
    }
    if (!effects.commit) return;
    // The commit may take long and end after this object is gone.
    const std::int64_t step = effects.commit->checkpoint.step;
    options_.checkpoints.commit(
        *effects.commit, [life = std::weak_ptr(life_), this, step](const SaveResult& result) {
          const auto alive = life.lock();
          if (alive) later(&JobCoordinator::on_committed, step, result);
        });
  }

  void act(const SnapshotRounds::Effects& effects) {
    for (const auto& note : effects.notes) log_info(kComponent, note);
    for (const auto& warning : effects.warnings) log_warn(kComponent, warning);
    send(effects.send);
  }

  void act(const Observer::Effects& effects) {
    send(effects.send);
    for (const auto& trace : effects.traces) {
      log_info(kComponent, "trace",
               {{"id", trace.id},
                {"ranks", trace.answers},
                {"of", trace.ranks},
                {"bytes", trace.octets.size()}});
      source_->post_trace(trace.id, trace.octets);
    }
    for (const auto& dump : effects.dumps) {
      log_warn(kComponent, "flight recorders",
               {{"why", dump.text}, {"step", dump.step}, {"bytes", dump.octets.size()}});
      if (options_.on_dump && !dump.octets.empty()) options_.on_dump(dump.step, dump.octets);
      if (!dump.for_users) continue;
      source_->post_flight({.id = "flight-" + std::to_string(dump.step),
                            .why = one_line(dump.text, protocol::kMostWhyBytes),
                            .octets = timeline::cut_to(dump.octets, protocol::kMaxTracePartBytes)});
    }
  }

  void on_removed() {
    saves_.removed();
    advance();
  }

  void on_committed(std::int64_t step, const SaveResult& result) {
    if (stopping_) return;
    act(saves_.committed(step, result, members_, clock_.now()));
    advance();
  }

  void send(const Outgoing& outgoing) {
    for (const auto& [index, message] : outgoing) {
      // Replicas that average must meet at a step at which all stop.
      if (const auto* commit = std::get_if<protocol::Commit>(&message)) {
        rounds_.gather_at(commit->at_step);
      } else if (const auto* save = std::get_if<protocol::Save>(&message);
                 save != nullptr && !save->snapshot) {
        rounds_.gather_at(save->step);
      }
      const auto* state = members_.find(index);
      if (state != nullptr && state->connected()) server_->send(state->session, message);
    }
  }

  void send_report() {
    next_report_ = clock_.now() + options_.report_interval;
    auto report = reporter_.make(switch_.plan(), switch_.incarnation(), members_, last_switch_,
                                 clock_.now(), switch_.lost());
    report.last_checkpoint_step = saves_.newest();
    if (switch_.compressed().knows(report.step)) {
      report.compressed_steps = switch_.compressed().at(report.step);
    }
    report.sync = rounds_.totals();
    report.snapshots = snapshots_.state();
    report.exported = exported_;
    report.validation = validation_;
    report.stall = observer_.stall(members_, clock_.now());
    if (report.stall) {  // its readers know the plan with all replicas only
      for (auto& rank : report.stall->ranks) {
        rank.replica = number_in_whole(rank.replica, switch_.covered());
      }
    }
    report.dead_links = switch_.dead_links().told(members_, clock_.now());
    report.lost_replicas.assign(switch_.gone().begin(), switch_.gone().end());
    source_->report(std::move(report));
  }

  // finish() waits until each connected rank of the plan has sent LEAVE.
  void check_finished() {
    if (!finishing_) return;
    const auto* plan = switch_.plan();
    for (const auto& [index, state] : members_.all()) {
      if (!state.connected() || state.leaving || plan == nullptr) continue;
      for (const auto& rank : plan->ranks) {
        if (rank.pod == state.member.pod) return;
      }
    }
    std::exchange(finishing_, nullptr)->set_value();
  }

  // When all ranks of the plan have done their last step, members without a rank may end, too. So
  // may members of lost replicas.
  void tell_idle() {
    const auto* plan = switch_.plan();
    if (plan == nullptr) return;
    std::set<std::string> training;
    for (const auto& rank : plan->ranks) {
      if (switch_.lost().contains(rank.replica)) continue;
      const auto* member = members_.by_pod(rank.pod);
      if (member == nullptr || !member->finished) return;
      training.insert(rank.pod);
    }
    for (const auto& [index, state] : members_.all()) {
      const bool idle = state.connected() && !state.leaving && !training.contains(state.member.pod);
      if (idle) server_->send(state.session, protocol::Leave{"finished"});
    }
  }

  const Options options_;
  const Clock& clock_;
  std::unique_ptr<PlanSource> source_;
  const std::function<void(std::string)> on_gone_;
  // The fields below belong to the server's thread.
  Members members_;
  Startup startup_;
  PlanSwitch switch_;
  SaveRounds saves_;
  SnapshotRounds snapshots_;
  SyncRounds rounds_;
  Observer observer_;
  Reporter reporter_;
  StepTotals totals_;
  std::optional<protocol::LastSwitch> last_switch_;
  std::optional<protocol::Exported> exported_;
  std::optional<protocol::Validation> validation_;  // the newest one
  std::set<int> lost_;                              // replicas that rounds_ knows to be lost
  SteadyTime next_report_{};
  bool registered_ = false, stopping_ = false;
  std::shared_ptr<std::promise<void>> finishing_;
  // Expires with this object; late answers check it.
  std::shared_ptr<int> life_ = std::make_shared<int>();
  std::unique_ptr<control::RankServer> server_;
};

}  // namespace

Result<std::unique_ptr<Coordinator>> start_coordinator(const Options& options, std::string job_key,
                                                       std::unique_ptr<PlanSource> source,
                                                       std::function<void(std::string)> on_gone,
                                                       const Ground& ground) {
  auto coordinator = std::make_unique<JobCoordinator>(options, std::move(source),
                                                      std::move(on_gone), ground.clock);
  WEIR_TRY([[maybe_unused]] auto started,
           coordinator->start(std::move(job_key), ground.make_server));
  return Result<std::unique_ptr<Coordinator>>(std::move(coordinator));
}

}  // namespace weir::coordinator
